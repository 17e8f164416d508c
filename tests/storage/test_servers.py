"""The servers that other tests use."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.storage.servers import LOOPBACK

if TYPE_CHECKING:
    from tests.storage.servers import S3Server


@pytest.mark.parametrize("name", ["seaweedfs", "rclone"])
def test_a_server_listens_on_loopback_only(name: str, request: pytest.FixtureRequest) -> None:
    server: S3Server = request.getfixturevalue(name)
    listing = shutil.which("ss")
    if listing is None:
        pytest.skip("ss is not installed")
    lines = subprocess.run([listing, "-ltnpH"], check=True, capture_output=True, text=True)
    addresses = [
        line.split()[3] for line in lines.stdout.splitlines() if f"pid={server.pid}," in line
    ]
    assert f"{LOOPBACK}:{server.port}" in addresses
    assert all(address.startswith(f"{LOOPBACK}:") for address in addresses), addresses
    assert os.getpgid(server.pid) == server.pid
