"""A process that does work on batches until it is let go: the other side of `processes`.

It ends as soon as the process that started it does, however that ends and whatever is at work.
"""

from __future__ import annotations

import os
import pickle
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from shardline.execution.pipe_messages import receive, send
from shardline.udf.pipes import asked, reply, reply_of_error
from shardline.udf.results import in_words

if TYPE_CHECKING:
    from io import BufferedReader

    from shardline.execution.pipe_messages import Message, Part
    from shardline.udf.placement import Work


def main(requests: int, replies: int) -> None:
    """Work for whoever holds the other ends of these two pipes."""
    for number in (requests, replies):
        os.set_inheritable(number, False)  # noqa: FBT003 - the system's own
    # Not closed in the end: whoever did would wait for the thread that reads it.
    inbox = _Inbox(os.fdopen(requests, "rb", closefd=False))
    with os.fdopen(replies, "wb") as outgoing:
        message = inbox.take()
        if message is None:
            return
        try:
            work: Work = pickle.loads(message[0])  # noqa: S301 - from the process that started us
        except Exception as error:  # noqa: BLE001 - whatever loading it does
            send(outgoing, b"failed", in_words(error).encode())
            return
        send(outgoing, b"ready")
        while (message := inbox.take()) is not None:
            send(outgoing, *_done(work, message))


def _done(work: Work, message: Message) -> tuple[Part, ...]:
    batch, every = asked(message)
    try:
        return reply(work(batch, every=every))
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        return reply_of_error(error)


class _Inbox:
    """Messages as they come. A thread waits for them, so that the end is noticed during work."""

    def __init__(self, pipe: BufferedReader) -> None:
        self._pipe = pipe
        self._messages: SimpleQueue[Message | None] = SimpleQueue()
        self._idle = True
        Thread(target=self._listen, daemon=True).start()

    def take(self) -> Message | None:
        """The next message, None if there will be none."""
        self._idle = True
        message = self._messages.get()
        self._idle = False
        return message

    def _listen(self) -> None:
        while True:
            try:
                self._messages.put(receive(self._pipe))
            except (EOFError, OSError):
                self._messages.put(None)
                if not self._idle:
                    os._exit(1)  # nobody waits for what is being worked out
                return
