"""What the demo model understands: one request a line, each a verb at the line's start. Pure.

Lines that begin with no such verb are left aside, so a request may stand among ordinary sentences.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from switchtower.models import port


class DemoCallTools(Struct, frozen=True):
    """Nearly always one call; those of one step are made in one message."""

    intent: str
    calls: tuple[port.ToolCallPart, ...]


class DemoCount(Struct, frozen=True):
    upto: int


class DemoThink(Struct, frozen=True):
    text: str


class DemoSay(Struct, frozen=True):
    text: str


DemoStep = DemoCallTools | DemoCount | DemoThink | DemoSay

UNDERSTOOD = (
    "`list DIR`, `read PATH`, `read all: PATH PATH …`, `search PATTERN`, `write PATH: TEXT`, `edit PATH: OLD => NEW`, "
    "`run: COMMAND`, `git status`, `git diff`, `commit: MESSAGE`, `ask: QUESTION | ANSWER | ANSWER …`, `count N`, "
    "`think: TEXT`, `say: TEXT`"
)


def parse_steps(request: str) -> list[DemoStep]:
    return [step for line in request.splitlines() if (step := _parse_step(line.strip())) is not None]


def _parse_step(line: str) -> DemoStep | None:
    for pattern, make in _VERBS:
        if found := pattern.match(line):
            return make(found)
    return None


# A path with spaces needs quotes: without them "read the manual" would be taken for a file.
_ONE = r"""(?:"[^"]+"|'[^']+'|`[^`]+`|[^\s"'`:]+)"""


def _unquote(found: str) -> str:
    return found[1:-1] if found[0] in "\"'`" else found


def _make_call(intent: str, tool: str, **args: str) -> DemoCallTools:
    return DemoCallTools(intent, (port.ToolCallPart(tool, dict(args)),))


def _make_list(found: re.Match[str]) -> DemoStep:
    path = _unquote(found["path"] or ".")
    return _make_call(f"list `{path}`", "list_dir", path=path)


def _make_read(found: re.Match[str]) -> DemoStep:
    path = _unquote(found["path"])
    return _make_call(f"read `{path}`", "read_file", path=path)


def _make_read_all(found: re.Match[str]) -> DemoStep:
    paths = [_unquote(path) for path in re.findall(_ONE, found["paths"])]
    named = ", ".join(f"`{path}`" for path in paths)
    return DemoCallTools(f"read {named}", tuple(port.ToolCallPart("read_file", {"path": path}) for path in paths))


def _make_search(found: re.Match[str]) -> DemoStep:
    pattern = _unquote(found["pattern"])
    if found["path"] is None:
        return _make_call(f"search for `{pattern}`", "search", pattern=pattern)
    path = _unquote(found["path"])
    return _make_call(f"search for `{pattern}` in `{path}`", "search", pattern=pattern, path=path)


def _make_write(found: re.Match[str]) -> DemoStep:
    path = _unquote(found["path"])
    return _make_call(f"write `{path}`", "write_file", path=path, content=found["text"])


def _make_edit(found: re.Match[str]) -> DemoStep:
    path = _unquote(found["path"])
    return _make_call(f"edit `{path}`", "edit_file", path=path, old=found["old"], new=found["new"] or "")


def _make_run(found: re.Match[str]) -> DemoStep:
    return _make_call(f"run `{found['text']}`", "run", command=found["text"])


def _make_git_status(found: re.Match[str]) -> DemoStep:
    return _make_call("look at git's status", "git_status")


def _make_git_diff(found: re.Match[str]) -> DemoStep:
    return _make_call("look at git's diff", "git_diff")


def _make_commit(found: re.Match[str]) -> DemoStep:
    return _make_call(f"commit as `{found['text']}`", "git_commit", message=found["text"])


def _make_ask(found: re.Match[str]) -> DemoStep:
    question, *options = (part.strip() for part in found["text"].split("|"))
    call = port.ToolCallPart("ask_user", {"question": question, **({"options": options} if options else {})})
    return DemoCallTools(f"ask you “{question}”", (call,))


def _make_count(found: re.Match[str]) -> DemoStep:
    return DemoCount(int(found["upto"]))


def _make_think(found: re.Match[str]) -> DemoStep:
    return DemoThink(found["text"])


def _make_say(found: re.Match[str]) -> DemoStep:
    return DemoSay(found["text"])


_VERBS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], DemoStep]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), make)
    for pattern, make in (
        (rf"list(?:\s+(?P<path>{_ONE}))?$", _make_list),
        (rf"read\s+all\s*:(?P<paths>(?:\s+{_ONE})+)$", _make_read_all),
        (rf"read\s+(?P<path>{_ONE})$", _make_read),
        (rf"search\s+(?P<pattern>{_ONE})(?:\s+in\s+(?P<path>{_ONE}))?$", _make_search),
        (rf"write\s+(?P<path>{_ONE})\s*:\s?(?P<text>.*)$", _make_write),
        (rf"edit\s+(?P<path>{_ONE})\s*:\s?(?P<old>.+?) =>(?: (?P<new>.*))?$", _make_edit),
        (r"run\s*:\s*(?P<text>.+)$", _make_run),
        (r"git\s+status$", _make_git_status),
        (r"git\s+diff$", _make_git_diff),
        (r"commit\s*:\s*(?P<text>.+)$", _make_commit),
        (r"ask\s*:\s*(?P<text>.+)$", _make_ask),
        (r"count\s+(?P<upto>\d{1,7})$", _make_count),
        (r"think\s*:\s*(?P<text>.+)$", _make_think),
        (r"say\s*:\s?(?P<text>.+)$", _make_say),
    )
)
