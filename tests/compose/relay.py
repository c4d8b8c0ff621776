"""Published ports of the tests' containers: a Unix socket is reached from any network, a TCP port only from its own.

    python relay.py SOCKET HOST PORT        in the containers' network: from the socket to the service

Outside, :func:`publish` listens on the port that the compose file publishes.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable


def publish(address: str, port: int, socket_path: str) -> socket.socket:
    """Hand connections to ``address``:``port`` on to the relay at ``socket_path``, until the result is closed."""
    listener = socket.create_server((address, port))

    def connect() -> socket.socket:
        there = socket.socket(socket.AF_UNIX)
        there.connect(socket_path)
        return there

    threading.Thread(target=_serve, args=(listener, connect), daemon=True).start()
    return listener


def _serve(listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
    with contextlib.suppress(OSError):  # closed: the end
        while True:
            here, _ = listener.accept()
            try:
                there = connect()
            except OSError:
                here.close()
                continue
            for source, target in ((here, there), (there, here)):
                threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def main() -> None:
    """The command line; see the module's docstring."""
    path, host, port = sys.argv[1:]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    _serve(listener, lambda: socket.create_connection((host, int(port)), timeout=60))


if __name__ == "__main__":
    main()
