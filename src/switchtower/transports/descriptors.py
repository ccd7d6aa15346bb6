"""stdin and stdout, taken for a protocol alone. From then on a stray print goes to stderr, and nobody else reads the input."""

import fcntl
import os

_FIRST_PRIVATE = 3
"""Below are the standard ones. One of them may be closed, and a copy must not take its place."""


def claim() -> tuple[int, int]:
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
