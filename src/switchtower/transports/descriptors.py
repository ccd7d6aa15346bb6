"""Reserves stdin and stdout for a protocol. From then on a stray print goes to stderr, and no other code reads the input."""

import fcntl
import os

_FIRST_PRIVATE = 3
"""The descriptors below are the standard ones. One of them may be closed, and a copy must not take its number."""


def claim_stdio() -> tuple[int, int]:
    """Returns private descriptors of stdin and stdout, in this order; no child inherits them. Raises OSError when one is not
    open.
    """
    claimed_input = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)
    try:
        claimed_output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)
    except OSError:
        os.close(claimed_input)
        raise
    nowhere = os.open(os.devnull, os.O_RDWR)  # takes the place of stderr if there is none
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    if nowhere >= _FIRST_PRIVATE:
        os.close(nowhere)
    return claimed_input, claimed_output


class StdoutRedirect:
    """Redirects stdout and stderr to the reader of our stderr without ever blocking: output that does not fit is dropped. Make it
    after `claim_stdio`, and close it, so that the last output is still written.
    """

    _PIECE = 4096
    """The bytes that a pipe accepts at once when it is ready for writing."""
    _PATIENCE_MS = 1000
    """The wait for a slow reader. One that has not read for so long is not waited for again until there is space."""

    def __init__(self) -> None:
        import _thread

        self._outside = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)
        self._inside, entrance = os.pipe()
        self._redirect_to(entrance)
        os.close(entrance)
        self._running = _thread.allocate_lock()
        self._running.acquire()
        _thread.start_new_thread(self._copy_output, ())

    def close(self) -> None:
        """A process that we started and that lives on may still hold the write end, and is not waited for."""
        self._redirect_to(self._outside)
        self._running.acquire(timeout=2 * self._PATIENCE_MS / 1000)

    def _redirect_to(self, descriptor: int) -> None:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)

    def _copy_output(self) -> None:
        import select

        room = select.poll()
        room.register(self._outside, select.POLLOUT)
        patience = self._PATIENCE_MS
        try:
            while piece := os.read(self._inside, self._PIECE):
                ready = room.poll(patience)
                patience = self._PATIENCE_MS if ready else 0
                if ready:
                    os.write(self._outside, piece)
        except OSError:
            # The reader has closed. Reading on keeps the writers from blocking.
            while os.read(self._inside, self._PIECE):
                pass
        finally:
            self._running.release()


"""Descriptors for the owner's sockets, the journal and the processes of runs."""

"""The number of connections that are possible however few descriptors there are."""

"""The seconds that an unknown client may wait while more than half of the slots for unknown clients are taken."""

"""An unknown client that connected less than this many seconds ago keeps its slot."""
