"""The demo model: deterministic, offline, and declared as a demo. It works without a key and without a network.

It drives real tools on explicit requests, one step a message, and comments on each result. A request is a line that starts with a
known verb; other lines are ignored, so a request may be among ordinary sentences. The model keeps no state: its progress is
counted in the conversation. Asked for a summary, it lists the requests and the tools used.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from msgspec import Struct

from switchtower.core.ports import engine
from switchtower.models import port


class DemoCallTools(Struct, frozen=True):
    """The calls of one step, nearly always one; they are made in one message."""

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


DELAY = 0.03
"""The seconds between two words: a little faster than a person reads."""
NAME = "demo"
CONTEXT_WINDOW = 128_000

_PARTS_BETWEEN_YIELDS = 16
_LONGEST_QUOTE = 200
_MOST_REQUESTS = 5
_CHARACTERS_A_TOKEN = 4

INTRODUCTION = "I am Switchtower's demo model: I do not think, but the tools I use are real."
CLOSING = "That was everything you asked for."

NOT_UNDERSTOOD = (
    "the demo model does not think and did not understand this: it follows lines that begin with one of "
    f"{UNDERSTOOD}; hint: configure a model, see `tower models`"
)

_TO_SUMMARISE = "You summarise "
"""The start of a system prompt that asks for a summary and no work."""


class DemoModel:
    def __init__(self, delay: float = DELAY) -> None:
        self._delay = delay

    @property
    def provider(self) -> str:
        return NAME

    @property
    def name(self) -> str:
        return NAME

    @property
    def context_window(self) -> int | None:
        return CONTEXT_WINDOW

    async def stream(self, request: port.CompletionRequest) -> AsyncIterator[port.Part]:
        if not _is_understood(request):
            raise port.ModelError(NOT_UNDERSTOOD, transient=False)
        characters = 0
        for number, part in enumerate(_iterate_parts(request), start=1):
            yield part
            characters += _estimate_part_size(part)
            if self._delay or number % _PARTS_BETWEEN_YIELDS == 0:
                await asyncio.sleep(self._delay)
        yield port.UsagePart(_estimate_tokens(request), characters // _CHARACTERS_A_TOKEN, cost=0.0)


def _is_understood(request: port.CompletionRequest) -> bool:
    """Returns whether there is something to do. A request that the demo cannot follow fails the run: it must not count as done
    work.
    """
    if request.system.startswith(_TO_SUMMARISE):
        return True
    return bool(parse_steps(_find_current_request(request.conversation)[0].text))


def _iterate_parts(request: port.CompletionRequest) -> Iterator[port.Part]:
    spoken = False
    yield port.ThinkingPart("The demo model follows the request line by line.\n")
    for step in _iterate_steps(request):
        match step:
            case DemoCallTools(calls=calls):
                yield from calls
            case DemoThink(text=text):
                yield from map(port.ThinkingPart, _split_words(text))
            case DemoSay() | DemoCount():
                separator = "\n" if spoken else ""
                for word in _iterate_words(step):
                    yield port.TextPart(separator + word)
                    separator = ""
                spoken = True


def _iterate_steps(request: port.CompletionRequest) -> Iterator[DemoStep]:
    """Yields a remark on the last results, then the remaining steps up to the next call, or up to the end."""
    if request.system.startswith(_TO_SUMMARISE):
        yield DemoSay(_summarize(request.conversation))
        return
    asked, since = _find_current_request(request.conversation)
    if asked.images and not since:
        yield DemoSay(f"I was shown {_format_count(asked.images, 'picture', 'pictures')}, which I cannot see.")
    steps = parse_steps(asked.text)
    calls_made = sum(len(message.calls) for message in since)
    with_tools = any(isinstance(step, DemoCallTools) for step in steps)
    if calls_made:
        yield from (DemoSay(_make_remark(message)) for message in _find_latest_results(since))
    elif with_tools:
        yield DemoSay(INTRODUCTION)

    to_do = _skip_called_steps(steps, calls_made)
    for step in to_do:
        if isinstance(step, DemoCallTools):
            yield DemoSay(f"I will {step.intent}.")
            yield step
            return
        yield step
    if with_tools or not any(isinstance(step, DemoSay | DemoCount) for step in to_do):
        yield DemoSay(CLOSING)


def _find_current_request(conversation: Sequence[engine.Message]) -> tuple[engine.Message, Sequence[engine.Message]]:
    """Returns the last user message and the messages after it."""
    for index in range(len(conversation) - 1, -1, -1):
        if conversation[index].role == "user":
            return conversation[index], conversation[index + 1 :]
    return engine.Message(role="user", text=""), conversation


def _find_latest_results(since: Sequence[engine.Message]) -> Sequence[engine.Message]:
    """Returns the results of the last message's tool calls."""
    start = len(since)
    while start and since[start - 1].role == "tool":
        start -= 1
    return since[start:]


def _skip_called_steps(steps: list[DemoStep], calls_made: int) -> list[DemoStep]:
    """Returns the steps after the one that made the last call."""
    if calls_made == 0:
        return steps
    for index, step in enumerate(steps):
        if isinstance(step, DemoCallTools):
            calls_made -= len(step.calls)
            if calls_made <= 0:
                return steps[index + 1 :]
    return []


def _summarize(conversation: Sequence[engine.Message]) -> str:
    """Lists the requests, without the one for this very summary, and the tools used."""
    *earlier, last = conversation or (engine.Message(role="user", text=""),)
    if not earlier:  # everything to summarise is in the request itself
        return f"Summary by the demo model of {_format_count(last.text.splitlines(), 'line', 'lines')}."
    requests = [" ".join(message.text.split()) for message in earlier if message.role == "user"]
    used = Counter(call.tool for message in earlier for call in message.calls)
    lines = [f"Summary by the demo model of {_format_count(earlier, 'message', 'messages')}."]
    lines += [f"The user asked: {_quote(request)}" for request in requests[-_MOST_REQUESTS:]]
    if used:
        lines.append(f"Tools used: {', '.join(f'{tool} ({times})' for tool, times in sorted(used.items()))}")
    return "\n".join(lines)


def _make_remark(result: engine.Message) -> str:
    if result.is_error:
        return f"That did not work: {_take_ending(result.text)}"
    lines = result.text.splitlines()
    match result.tool:
        case "list_dir":
            return f"The folder has {_format_count(lines, 'entry', 'entries')}: {_quote(', '.join(lines))}"
        case "read_file":
            if not lines:
                return "The file is empty."
            return f"The file has {_format_count(lines, 'line', 'lines')}; the first is: {_quote(lines[0])}"
        case _:
            return f"It says: {_take_ending(result.text)}"


def _format_count(things: Sequence[object], one: str, many: str) -> str:
    return f"{len(things)} {one if len(things) == 1 else many}"


def _quote(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]} …"


def _take_ending(text: str) -> str:
    """Returns one line with the end rather than the start: the end has a command's exit code."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_QUOTE else f"… {line[-_LONGEST_QUOTE:]}"


def _iterate_words(step: DemoSay | DemoCount) -> Iterator[str]:
    if isinstance(step, DemoSay):
        return _split_words(step.text)
    return (f"{number} " if number < step.upto else f"{number}" for number in range(1, step.upto + 1))


def _split_words(text: str) -> Iterator[str]:
    """Splits the text into pieces of one word and the space behind it; joined they are the text again."""
    return (found.group() for found in re.finditer(r"\s*\S+\s*", text))


def _estimate_part_size(part: port.Part) -> int:
    if isinstance(part, port.TextPart | port.ThinkingPart):
        return len(part.text)
    return len(str(part.args)) if isinstance(part, port.ToolCallPart) else 0


def _estimate_tokens(request: port.CompletionRequest) -> int:
    """Estimates what a real model would have counted."""
    said = sum(len(message.text) + sum(len(str(call.args)) for call in message.calls) for message in request.conversation)
    pictured = sum(len(message.images) for message in request.conversation) * port.TOKENS
    return (said + len(request.system)) // _CHARACTERS_A_TOKEN + pictured
