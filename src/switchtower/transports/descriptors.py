"""stdin and stdout, taken for a protocol alone. From then on a stray print goes to stderr, and nobody else reads the input."""

import fcntl
import os

_FIRST_PRIVATE = 3
"""Below are the standard ones. One of them may be closed, and a copy must not take its place."""


def claim_stdio() -> tuple[int, int]:
    """Private descriptors of stdin and stdout, in this order; no child inherits them. Raises OSError when one is not open."""
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
    """stdout and stderr lead to whoever reads our stderr, and wait for nobody: what does not fit any more is dropped. To be made
    behind `claim`, and closed, so that the last words still get out."""

    _PIECE = 4096
    """So much goes into a pipe at once when it says that it takes something."""
    _PATIENCE_MS = 1000
    """For a reader who is only slow. One who has not read for so long is not waited for again until there is room."""

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
        """A process that we started and that lives on may still hold the entrance, and is not waited for."""
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
            # Nobody is there any more. To read on keeps those going who write.
            while os.read(self._inside, self._PIECE):
                pass
        finally:
            self._running.release()
