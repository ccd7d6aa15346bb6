"""How a program comes to its terminal: a session of its own, the terminal as the one that controls it, and the marks of its
run, all before its first instruction. Nothing of ours runs between fork and exec: that could hang in a process with threads.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache

from switchtower.tools.running import adoption, installed, marks, processes
from switchtower.tools.sandboxes import launch

_TERMINAL_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_LONGEST_NAME = 200

_TAKE_TERMINAL = """
import fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
               signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
"""


class ProgramNotStarted(Exception):
    """The program could not be started."""


def start_program(
    argv: Sequence[str], *, cwd: str, environment: Mapping[str, str], mark: marks.ProcessMark, terminal: int
) -> "subprocess.Popen[bytes]":
    """Starts it with the terminal as input, output and errors. `adoption.let_go` when it is reaped."""
    variables = {**environment, "PWD": cwd, **mark.environment_variables()}
    name = argv[0][:_LONGEST_NAME] if argv else ""
    try:
        processes.check_program(argv, cwd, variables)
        # The mark first: it is on everything from then on.
        wrapped = marks.wrap_with_mark([*_build_terminal_taker(), *argv], mark)
        adoption.register_run(mark.run_id)
        return adoption.start_kept_child(
            mark.run_id,
            lambda: launch.popen(wrapped, cwd=cwd, env=variables, stdin=terminal, stdout=terminal, stderr=terminal),
        )
    except OSError as error:
        raise ProgramNotStarted(_describe_start_error(error, name, cwd)) from error
    except ValueError as error:
        raise ProgramNotStarted(f"`{name}` cannot be started: {error}" if name else str(error)) from error


def _describe_start_error(error: OSError, name: str, cwd: str) -> str:
    if not os.path.isdir(cwd):  # noqa: PTH112 - a row of words from outside, which may be no path at all
        return f"the folder `{cwd[:_LONGEST_NAME]}` cannot be entered; hint: see whether it is still there"
    if isinstance(error, FileNotFoundError):
        return f"there is no program `{name}` that can be run here; hint: see whether it is installed and executable"
    return f"`{name}` cannot be started: {error.strerror or 'the system refused'}"


def _build_terminal_taker() -> list[str]:
    """Makes a session, takes the terminal at its input for it, and becomes the program behind it.

    `setsid` does that in a millisecond, and leaves the environment as it is, which a shell would not. It forks when it leads
    a group, so `Popen` must not have made a session already. Without it, or when a signal of terminals is ignored here
    (as in what was started with `nohup` or by a script with `&`), which the program would inherit, Python does it in thirty.
    """
    setsid = _find_setsid()
    if setsid is not None and not any(signal.getsignal(number) is signal.SIG_IGN for number in _TERMINAL_SIGNALS):
        return [setsid, "-c", "--"]
    return _build_python_taker()


def _build_python_taker() -> list[str]:
    return [sys.executable, "-ISc", _TAKE_TERMINAL]


@cache
def _find_setsid() -> str | None:
    """Tried once: not every `setsid` knows about terminals."""
    setsid = installed.find_program("setsid")
    if setsid is None:
        return None
    main, terminal = os.openpty()
    try:
        tried = subprocess.run(  # noqa: S603
            [setsid, "-c", "--", "true"], stdin=terminal, capture_output=True, timeout=5, check=False
        )
        return setsid if tried.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        return None
    finally:
        os.close(main)
        os.close(terminal)
