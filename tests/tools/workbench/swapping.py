"""An enemy at work beside us: a thread that swaps a name between something honest and a link, as fast as it can."""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE = -100
_EXCHANGE = 2


@contextmanager
def swap_repeatedly(name: Path, link_to: Path) -> Iterator[None]:
    """The name is at each moment either what it was or a link. At the end it is what it was."""
    link = name.with_name(f"{name.name}.link")
    link.symlink_to(link_to)
    one, other = os.fsencode(name), os.fsencode(link)
    libc = ctypes.CDLL(None, use_errno=True)
    stop = threading.Event()
    troubles: list[int] = []

    def swap() -> None:
        while not stop.is_set() and not troubles:
            for _ in range(2):
                if libc.renameat2(_HERE, one, _HERE, other, _EXCHANGE):
                    troubles.append(ctypes.get_errno())

    enemy = threading.Thread(target=swap)
    enemy.start()
    try:
        yield
    finally:
        stop.set()
        enemy.join()
    assert not troubles, os.strerror(troubles[0])
    link.unlink()
