"""stdin and stdout, claimed: a print of ours or of a child's cannot get between the lines of a protocol."""

import subprocess
import sys

CLAIM = """
import os, subprocess, sys
from switchtower.transports import descriptors
claimed_input, claimed_output = descriptors.claim_stdio()
print("a stray print", flush=True)
subprocess.run(["echo", "a child's print"])
assert sys.stdin.read() == "", "nobody else gets the input"
os.write(claimed_output, os.read(claimed_input, 100))
assert not os.get_inheritable(claimed_input) and not os.get_inheritable(claimed_output)
"""


def test_only_the_claimer_reads_and_writes() -> None:
    ended = subprocess.run([sys.executable, "-c", CLAIM], input=b"a line\n", capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, b"a line\n"), ended.stderr
    assert ended.stderr == b"a stray print\na child's print\n"


def test_a_closed_stderr_does_not_make_prints_protocol() -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, CLAIM], input=b"a line\n", stdout=subprocess.PIPE, timeout=30
    )
    assert (ended.returncode, ended.stdout) == (0, b"a line\n")


def test_without_a_stdin_there_is_nothing_to_claim() -> None:
    code = "from switchtower.transports import descriptors\ntry: descriptors.claim_stdio()\nexcept OSError: print('no')"
    ended = subprocess.run(["/bin/sh", "-c", 'exec "$0" -c "$1" <&-', sys.executable, code], capture_output=True, timeout=60)
    assert ended.stdout == b"no\n", ended.stderr
