"""Keeps what the daemon has in memory, keys among it, from the other processes of its user: an agent's commands have its uid."""

import ctypes
import logging
import os
import resource
import sys

_PR_SET_DUMPABLE = 4

log = logging.getLogger(__name__)


def protect_memory() -> None:
    """To be called once, before a secret is read. From then on only root can read this process's memory and environment, attach a
    debugger to it or list its files, and it leaves no core dump. Programs that it starts are as readable as any."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        log.warning("other processes may read this one's memory: %s", os.strerror(ctypes.get_errno()))
    # The hard limit stays, because programs inherit it and some want their own core dumps.
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
