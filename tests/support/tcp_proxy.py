"""A wire between two processes that a test may watch, cut and close, while both processes live on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Self

MESSAGE_BYTES = 40
"""Pings, acknowledgements and window updates of HTTP/2 are shorter, a command or an event is longer."""


class TcpProxy:
    """Passes connections on to `target`, host:port, which may be set later and may come and go."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        # New connections are closed at once.
        self.refusing = False
        # All bytes that went to the target, one entry per connection.
        self.sent: list[bytearray] = []
        # The last message went to the target: it owes an answer.
        self.owed = False
        # What the target says from now on is lost on its way.
        self.swallowing = False
        self.num_swallowed = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def num_sent(self) -> int:
        """Bytes that went to the target."""
        return sum(len(sent) for sent in self.sent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.lose()

    def cut(self) -> None:
        """End all connections; both sides see the other one leave."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def lose(self) -> None:
        """The target seems dead from now on: connections end, and new ones are refused."""
        self.refusing = True
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return  # shut down
            threading.Thread(target=self._join, args=(caller,), daemon=True).start()

    def _join(self, caller: socket.socket) -> None:
        host, _, port = self.target.rpartition(":")
        with ExitStack() as stack:
            stack.enter_context(caller)
            if self.refusing:
                return
            try:
                target = stack.enter_context(socket.create_connection((host, int(port))))
            except OSError:
                return  # nobody is there
            both = {caller, target}
            with self._lock:
                self._open |= both
            sent = bytearray()
            self.sent.append(sent)

            def asked(data: bytes) -> bytes:
                sent.extend(data)
                self.owed |= len(data) >= MESSAGE_BYTES
                return data

            def answered(data: bytes) -> bytes:
                self.owed &= len(data) < MESSAGE_BYTES
                if self.swallowing:
                    self.num_swallowed += len(data) >= MESSAGE_BYTES
                    return b""
                return data

            back = threading.Thread(target=_pump, args=(target, caller, answered), daemon=True)
            back.start()
            _pump(caller, target, asked)
            back.join()
            with self._lock:
                self._open -= both


def _pump(source: socket.socket, sink: socket.socket, passed: Callable[[bytes], bytes]) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(passed(data))
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
