"""What the demo model understands: one request a line, each a verb at the line's start. Pure.

Lines that begin with no such verb are left aside, so a request may stand among ordinary sentences.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from switchtower.models import port


class CallTools(Struct, frozen=True):
    """Nearly always one call; those of one step are made in one message."""

    intent: str
    calls: tuple[port.ToolCall, ...]


class Count(Struct, frozen=True):
    upto: int


class Think(Struct, frozen=True):
    text: str


class Say(Struct, frozen=True):
    text: str


Step = CallTools | Count | Think | Say

UNDERSTOOD = (
    "`list DIR`, `read PATH`, `read all: PATH PATH …`, `search PATTERN`, `write PATH: TEXT`, `edit PATH: OLD => NEW`, "
    "`run: COMMAND`, `git status`, `git diff`, `commit: MESSAGE`, `ask: QUESTION | ANSWER | ANSWER …`, `count N`, "
    "`think: TEXT`, `say: TEXT`"
)


def parse(request: str) -> list[Step]:
    return [step for line in request.splitlines() if (step := _step(line.strip())) is not None]


def _step(line: str) -> Step | None:
    for pattern, make in _VERBS:
        if found := pattern.match(line):
            return make(found)
    return None


# A path with spaces needs quotes: without them "read the manual" would be taken for a file.
_ONE = r"""(?:"[^"]+"|'[^']+'|`[^`]+`|[^\s"'`:]+)"""


def _word(found: str) -> str:
    return found[1:-1] if found[0] in "\"'`" else found


def _call(intent: str, tool: str, **args: str) -> CallTools:
    return CallTools(intent, (port.ToolCall(tool, dict(args)),))


def _list(found: re.Match[str]) -> Step:
    path = _word(found["path"] or ".")
    return _call(f"list `{path}`", "list_dir", path=path)


def _read(found: re.Match[str]) -> Step:
    path = _word(found["path"])
    return _call(f"read `{path}`", "read_file", path=path)


def _read_all(found: re.Match[str]) -> Step:
    paths = [_word(path) for path in re.findall(_ONE, found["paths"])]
    named = ", ".join(f"`{path}`" for path in paths)
    return CallTools(f"read {named}", tuple(port.ToolCall("read_file", {"path": path}) for path in paths))


def _search(found: re.Match[str]) -> Step:
    pattern = _word(found["pattern"])
    if found["path"] is None:
        return _call(f"search for `{pattern}`", "search", pattern=pattern)
    path = _word(found["path"])
    return _call(f"search for `{pattern}` in `{path}`", "search", pattern=pattern, path=path)


def _write(found: re.Match[str]) -> Step:
    path = _word(found["path"])
    return _call(f"write `{path}`", "write_file", path=path, content=found["text"])


def _edit(found: re.Match[str]) -> Step:
    path = _word(found["path"])
    return _call(f"edit `{path}`", "edit_file", path=path, old=found["old"], new=found["new"] or "")


def _run(found: re.Match[str]) -> Step:
    return _call(f"run `{found['text']}`", "run", command=found["text"])


def _git_status(found: re.Match[str]) -> Step:
    return _call("look at git's status", "git_status")


def _git_diff(found: re.Match[str]) -> Step:
    return _call("look at git's diff", "git_diff")


def _commit(found: re.Match[str]) -> Step:
    return _call(f"commit as `{found['text']}`", "git_commit", message=found["text"])


def _ask(found: re.Match[str]) -> Step:
    question, *options = (part.strip() for part in found["text"].split("|"))
    call = port.ToolCall("ask_user", {"question": question, **({"options": options} if options else {})})
    return CallTools(f"ask you “{question}”", (call,))


def _count(found: re.Match[str]) -> Step:
    return Count(int(found["upto"]))


def _think(found: re.Match[str]) -> Step:
    return Think(found["text"])


def _say(found: re.Match[str]) -> Step:
    return Say(found["text"])


_VERBS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Step]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), make)
    for pattern, make in (
        (rf"list(?:\s+(?P<path>{_ONE}))?$", _list),
        (rf"read\s+all\s*:(?P<paths>(?:\s+{_ONE})+)$", _read_all),
        (rf"read\s+(?P<path>{_ONE})$", _read),
        (rf"search\s+(?P<pattern>{_ONE})(?:\s+in\s+(?P<path>{_ONE}))?$", _search),
        (rf"write\s+(?P<path>{_ONE})\s*:\s?(?P<text>.*)$", _write),
        (rf"edit\s+(?P<path>{_ONE})\s*:\s?(?P<old>.+?) =>(?: (?P<new>.*))?$", _edit),
        (r"run\s*:\s*(?P<text>.+)$", _run),
        (r"git\s+status$", _git_status),
        (r"git\s+diff$", _git_diff),
        (r"commit\s*:\s*(?P<text>.+)$", _commit),
        (r"ask\s*:\s*(?P<text>.+)$", _ask),
        (r"count\s+(?P<upto>\d{1,7})$", _count),
        (r"think\s*:\s*(?P<text>.+)$", _think),
        (r"say\s*:\s?(?P<text>.+)$", _say),
    )
)
