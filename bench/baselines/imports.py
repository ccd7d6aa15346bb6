"""Bare Python that imports the libraries named in a file, listens on a socket and waits."""

import contextlib
import importlib
import signal
import socket
import sys

if __name__ == "__main__":
    with open(sys.argv[2]) as names:  # noqa: PTH123 - not an import of our own
        for name in names.read().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    signal.pause()
