"""Tests once more as an ordinary user: where root runs them, because root sees and may do what nobody else can."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65_534
TIMEOUT = 600
AGAIN = "TOWER_TESTS_ORDINARY_USER"


def run_tests(module: str, *arguments: str) -> None:
    """Runs the tests of a file in a process of an ordinary user. Skips when the user who runs this cannot become another."""
    if os.environ.get(AGAIN):
        pytest.skip("this is the ordinary user already")
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; as an ordinary user all other tests here are this one")
    words = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-x", *arguments, module]
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    environment = {**os.environ, AGAIN: "1", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}
    closed = _find_closed_folder(Path(sys.base_prefix).resolve())
    command = [*become, *words] if closed is None else ["unshare", "-m", "sh", "-c", _OPEN, "sh", str(closed), *become, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"the interpreter is in `{closed}`, which ordinary users cannot enter: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout


def _find_closed_folder(place: Path) -> Path | None:
    """The interpreter may lie below root's home. The topmost folder on the way to it that others cannot enter."""
    return next((folder for folder in reversed(place.parents) if not folder.stat().st_mode & 0o001), None)


_OPEN = """set -e
closed=$1; shift
aside=$(mktemp -d)
mount --rbind "$closed" "$aside"
mount -t tmpfs -o mode=755 tmpfs "$closed"
for entry in "$aside"/* "$aside"/.[!.]*; do
    if [ -d "$entry" ] && [ ! -L "$entry" ]; then
        mkdir "$closed/${entry##*/}" && mount --rbind "$entry" "$closed/${entry##*/}"
    fi
done
exec "$@"
"""
"""In a mount namespace of its own: the same folders, in one that can be entered."""
