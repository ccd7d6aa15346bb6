"""Decisions of the policy about everyday commands, each command another one, against the splitting of the same texts by `shlex`.

Prints microseconds a command: the decision, the splitting, and the decision with the names in it followed on the disk.
"""

import shlex
import sys
import time
from collections.abc import Callable

import msgspec

from switchtower.core import events, policy

COMMANDS = (
    "git log --oneline -n 5 file{}",
    "npm test -- --watch file{}",
    "pytest -x -q tests/test_{}.py",
    "cd src && ls -la | grep foo{}",
    "make -j4 test{} 2>&1",
    "git diff --stat HEAD~1 -- src/a{}.py",
    "cargo build --release # {}",
    "grep -rn 'foo bar' src{}",
    "python -m pytest -q tests -k 'foo and not bar{}'",
    "tar -xzf a{}.tgz",
    "curl -s https://example.com/a{}",
    "for i in a; do rm $i{}; done",
    "git push origin main{}",
    "cat src/a{}.py src/b.py",
    "timeout 60 npm run build{} && git status",
)
ALLOWED = ("git *", "npm *", "pytest *", "ls *", "grep *", "make *", "cargo *", "python -m pytest *", "tar *", "curl *", "cat *")
RULES = (
    *(events.Rule("allow", command=command) for command in ALLOWED),
    events.Rule("deny", command="git push *"),
    events.Rule("deny", path="prod/**"),
)


def _measure_microseconds(work: Callable[[str], object], commands: list[str]) -> float:
    began = time.process_time()
    for command in commands:
        work(command)
    return (time.process_time() - began) / len(commands) * 1e6


def _split(command: str) -> list[str]:
    return list(shlex.shlex(command, posix=True, punctuation_chars=True))


def main(rounds: int, folder: str) -> dict[str, float]:
    rules = policy.Policy("ask", RULES)
    commands = [command.replace("{}", str(number)) for number in range(rounds) for command in COMMANDS]

    def judge(command: str) -> policy.Judgement:
        return rules.judge("run", {"command": command}, "execute", folder)

    def judge_on_disk(command: str) -> object:
        judgement = judge(command)
        return find_question(folder, "run", {"command": command}) if judgement.ruling is policy.Ruling.ALLOW else None

    _measure_microseconds(judge, commands[: len(COMMANDS)])
    measured = {"ours": _measure_microseconds(judge, commands), "bare": _measure_microseconds(_split, commands)}
    try:
        from switchtower.tools.files.links import find_question
    except ImportError:  # An older version, measured for comparison.
        return measured
    return {**measured, "on disk": _measure_microseconds(judge_on_disk, commands)}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(main(**msgspec.json.decode(sys.argv[1]))))
