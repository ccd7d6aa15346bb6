"""What the demo model understands: one request a line, each a verb at the line's start. Pure.

Lines that begin with no such verb are left aside, so a request may stand among ordinary sentences.
"""

import re

from msgspec import Struct

from switchtower.models import port


class CallTool(Struct, frozen=True):
    intent: str
    call: port.ToolCall


class Count(Struct, frozen=True):
    upto: int


class Think(Struct, frozen=True):
    text: str


class Say(Struct, frozen=True):
    text: str


Step = CallTool | Count | Think | Say

UNDERSTOOD = "`list DIR`, `read PATH`, `write PATH: TEXT`, `run: COMMAND`, `count N`, `think: TEXT`, `say: TEXT`"

# A path with spaces needs quotes: without them "read the manual" would be taken for a file.
_PATH = r"""(?:"(?P<double>[^"]+)"|'(?P<single>[^']+)'|`(?P<back>[^`]+)`|(?P<bare>[^\s"'`:]+))"""
_LIST = re.compile(rf"list(?:\s+{_PATH})?$", re.IGNORECASE)
_READ = re.compile(rf"read\s+{_PATH}$", re.IGNORECASE)
_WRITE = re.compile(rf"write\s+{_PATH}\s*:\s?(?P<text>.*)$", re.IGNORECASE)
_RUN = re.compile(r"run\s*:\s*(?P<text>.+)$", re.IGNORECASE)
_COUNT = re.compile(r"count\s+(?P<upto>\d{1,7})$", re.IGNORECASE)
_THINK = re.compile(r"think\s*:\s*(?P<text>.+)$", re.IGNORECASE)
_SAY = re.compile(r"say\s*:\s?(?P<text>.+)$", re.IGNORECASE)


def parse(request: str) -> list[Step]:
    return [step for line in request.splitlines() if (step := _step(line.strip())) is not None]


def _step(line: str) -> Step | None:
    if found := _LIST.match(line):
        path = _path(found) or "."
        return CallTool(f"list `{path}`", port.ToolCall("list_dir", {"path": path}))
    if found := _READ.match(line):
        path = _path(found)
        return CallTool(f"read `{path}`", port.ToolCall("read_file", {"path": path}))
    if found := _WRITE.match(line):
        path = _path(found)
        return CallTool(f"write `{path}`", port.ToolCall("write_file", {"path": path, "content": found["text"]}))
    if found := _RUN.match(line):
        return CallTool(f"run `{found['text']}`", port.ToolCall("run", {"command": found["text"]}))
    if found := _COUNT.match(line):
        return Count(int(found["upto"]))
    if found := _THINK.match(line):
        return Think(found["text"])
    if found := _SAY.match(line):
        return Say(found["text"])
    return None


def _path(found: re.Match[str]) -> str:
    return found["double"] or found["single"] or found["back"] or found["bare"] or ""
