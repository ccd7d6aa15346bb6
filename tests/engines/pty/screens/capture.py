"""Captures the screens of real programs in a pseudo-terminal: `python capture.py FOLDER`. Nothing it starts is let finish."""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

COLUMNS, ROWS = 80, 24
SILENCE_S = 1.5

PROGRAMS: dict[str, tuple[list[str], list[bytes]]] = {
    "none-less": (["less", "long.txt"], []),
    "none-vim": (["vim", "-u", "NONE", "-N", "long.txt"], []),
    "none-vim-left": (["sh", "-c", "echo before; vim -u NONE -N long.txt; echo after; exec sleep 9"], [b":q\r"]),
    "generic-ssh-keygen": (["ssh-keygen", "-t", "ed25519", "-f", "key"], []),
    "generic-ssh-keygen-overwrite": (["ssh-keygen", "-t", "ed25519", "-f", "old"], []),
    # Asked, never answered; and a dpkg that cannot do anything if it were.
    "generic-apt": (
        ["apt-get", "remove", "-o", "Dir::Bin::dpkg=/bin/false", "-o", "Dir::Etc::sourceparts=/dev/null", "less"],
        [],
    ),
    "generic-rm-i": (["rm", "-i", "long.txt"], []),
    "none-rm-i-answered": (["sh", "-c", "rm -i long.txt; exec sleep 9"], [b"n\n"]),
    "generic-git-add-p": (["git", "-c", "color.ui=always", "add", "-p"], []),
    "generic-python-input": ([sys.executable, "-c", "input('Your name: ')"], []),
    "generic-python-getpass": ([sys.executable, "-c", "import getpass; getpass.getpass()"], []),
    "generic-bash-select": (["bash", "-c", "select x in red green blue; do break; done"], []),
}


def main(folder: Path) -> None:
    for name, (argv, typed) in PROGRAMS.items():
        if shutil.which(argv[0]) is None:
            print(f"{name}: {argv[0]} is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="work", dir="/tmp") as place:
            prepare(Path(place))
            (folder / f"{name}.ansi").write_bytes(capture(argv, typed, place))


def prepare(place: Path) -> None:
    (place / "long.txt").write_text("".join(f"line {number}: the quick brown fox\n" for number in range(1, 101)))
    (place / "old").write_text("an old key\n")
    git = ["git", "-C", str(place), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "long.txt"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    (place / "long.txt").write_text((place / "long.txt").read_text().replace("line 50: the quick", "line 50: the slow"))


def capture(argv: list[str], typed: list[bytes], place: str) -> bytes:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {"PATH": os.environ["PATH"], "HOME": place, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "LESS": ""}
    # `setsid --ctty` gives the program the terminal as its own: ssh-keygen and getpass ask there.
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *argv],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=place,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    output = b""
    try:
        for answer in [*typed, b""]:
            output += wait_until_silent(ours)
            os.write(ours, answer)
    finally:
        for found in list_children(process.pid):
            os.kill(found, signal.SIGKILL)
        process.kill()
        process.wait()
        os.close(ours)
    return output


def wait_until_silent(terminal: int) -> bytes:
    output = b""
    while select.select([terminal], [], [], SILENCE_S)[0]:
        try:
            output += os.read(terminal, 65536)
        except OSError:
            break
    return output


def list_children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, listed) for each in (*list_children(child), child)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
