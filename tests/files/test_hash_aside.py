"""A hash made by another thread is that of the bytes as they were when they were added."""

from __future__ import annotations

import hashlib

from shardline.files.hashed import HashAside


def test_what_changes_after_it_was_added_does_not_matter() -> None:
    buffer = bytearray(2**20)
    aside, plain = HashAside(), hashlib.sha256()
    for number in range(50):
        buffer[:] = bytes([number]) * len(buffer)
        aside.update(memoryview(buffer)[number:])
        plain.update(buffer[number:])
    assert aside.hexdigest() == plain.hexdigest()


def test_nothing_added_is_the_hash_of_nothing() -> None:
    assert HashAside().hexdigest() == hashlib.sha256().hexdigest()
