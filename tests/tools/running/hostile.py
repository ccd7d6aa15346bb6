"""A program that does not want to end. Run as `python -IS hostile.py TOKEN REPORTS TRAIT…`, it goes into the background in
the way that its traits say, writes its pid into the named pipe REPORTS, and stays. The token is in the command line of
whatever it becomes, so that a test can look for it. A test that is killed cannot end it, so it also ends by itself.
"""

import os
import signal
import sys
import time

FOREVER = 1000
LIFETIME = 180
ENDS_AT = time.monotonic() + LIFETIME
"""Longer than any test waits."""


def main() -> None:
    _, reports, *traits = sys.argv[1:]
    limit_lifetime()
    for trait in traits:
        TRAITS.get(trait, lambda: None)()
    pipe = os.open(reports, os.O_WRONLY)
    os.write(pipe, f"{os.getpid()}\n".encode())
    os.close(pipe)
    last = traits[-1] if traits else ""
    LAST_TRAITS.get(last, lambda: time.sleep(FOREVER))()


def limit_lifetime() -> None:
    """An alarm is not inherited: each forked process sets one."""
    signal.alarm(max(1, int(ENDS_AT - time.monotonic())))


def session() -> None:
    if os.getpid() == os.getpgrp():
        forked()
    os.setsid()


def forked() -> None:
    if os.fork() != 0:
        os._exit(0)
    limit_lifetime()


def doubly_forked() -> None:
    forked()
    os.setsid()
    forked()


def deaf() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)


def silent() -> None:
    os.closerange(0, 3)


def low() -> None:
    """Drops the mark that is a limit, as nobody does by accident."""
    import resource

    for limit in (5, 10, 15):
        if resource.getrlimit(limit)[1] != resource.RLIM_INFINITY:
            resource.setrlimit(limit, (5, 5))


def chain() -> None:
    """Is always somebody else by the time one has found it."""
    while time.monotonic() < ENDS_AT:
        forked()
        os.setsid()
        time.sleep(0.005)


def phoenix() -> None:
    """Two that watch each other; whoever is left starts another."""
    while time.monotonic() < ENDS_AT:
        alive, watched = os.pipe()
        if os.fork() == 0:
            limit_lifetime()
            os.close(watched)
            os.read(alive, 1)  # returns when the other is gone
            os.close(alive)
            continue
        os.close(alive)
        os.wait()


def headless() -> None:
    """Its first thread ends and the process goes on: in `/proc` it looks dead."""
    import ctypes
    import threading

    started = threading.Event()

    def body() -> None:
        started.set()
        time.sleep(FOREVER)

    threading.Thread(target=body, daemon=True).start()
    started.wait()
    libc = ctypes.CDLL(None)
    libc.pthread_exit.argtypes = [ctypes.c_void_p]
    libc.pthread_exit(None)


def stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(FOREVER)


TRAITS = {"session": session, "forked": forked, "doubly-forked": doubly_forked, "deaf": deaf, "silent": silent, "low": low}
LAST_TRAITS = {"chain": chain, "phoenix": phoenix, "headless": headless, "stopped": stopped}

if __name__ == "__main__":
    main()
