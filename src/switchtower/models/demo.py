"""The demo model: deterministic, offline, and honest about being one. It serves when there is no key and no network.

It drives real tools on explicit requests (see `demo_steps`), one call a message, and remarks on each result. It keeps no
state: how far it has come is counted in the conversation.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence

from switchtower.core import engine
from switchtower.models import demo_steps, port

DELAY = 0.03
"""Seconds between two words: a little faster than a person reads."""
_PARTS_BETWEEN_YIELDS = 16
_LONGEST_QUOTE = 200

INTRODUCTION = "I am Switchtower's demo model: I do not think, but the tools I use are real."
CLOSING = "That was everything you asked for."


class DemoModel:
    def __init__(self, delay: float = DELAY) -> None:
        self._delay = delay

    async def stream(self, conversation: Sequence[engine.Message], tools: Sequence[port.ToolSpec]) -> AsyncIterator[port.Part]:
        for number, part in enumerate(_message(conversation), start=1):
            yield part
            if self._delay or number % _PARTS_BETWEEN_YIELDS == 0:
                await asyncio.sleep(self._delay)


def _message(conversation: Sequence[engine.Message]) -> Iterator[port.Part]:
    spoken = False
    yield port.ThinkingDelta("The demo model follows the request line by line.\n")
    for step in _steps_of_this_message(conversation):
        match step:
            case demo_steps.CallTool(call=call):
                yield call
            case demo_steps.Think(text=text):
                yield from map(port.ThinkingDelta, _words(text))
            case demo_steps.Say() | demo_steps.Count():
                separator = "\n" if spoken else ""
                for word in _spoken_words(step):
                    yield port.TextDelta(separator + word)
                    separator = ""
                spoken = True


def _steps_of_this_message(conversation: Sequence[engine.Message]) -> Iterator[demo_steps.Step]:
    """A remark on what came back, then what is still to do up to the next call, or up to the end."""
    request, since = _current_request(conversation)
    steps = demo_steps.parse(request)
    calls_made = sum(len(message.calls) for message in since)
    with_tools = any(isinstance(step, demo_steps.CallTool) for step in steps)
    if not steps:
        yield demo_steps.Say(f"{INTRODUCTION} I understand lines that begin with one of these: {demo_steps.UNDERSTOOD}.")
        return
    if calls_made:
        yield from (demo_steps.Say(_remark(message)) for message in since[-1:] if message.role == "tool")
    elif with_tools:
        yield demo_steps.Say(INTRODUCTION)

    to_do = _after_call(steps, calls_made)
    for step in to_do:
        if isinstance(step, demo_steps.CallTool):
            yield demo_steps.Say(f"I will {step.intent}.")
            yield step
            return
        yield step
    if with_tools or not any(isinstance(step, demo_steps.Say | demo_steps.Count) for step in to_do):
        yield demo_steps.Say(CLOSING)


def _current_request(conversation: Sequence[engine.Message]) -> tuple[str, Sequence[engine.Message]]:
    """The last user message and what came after it."""
    for index in range(len(conversation) - 1, -1, -1):
        if conversation[index].role == "user":
            return conversation[index].text, conversation[index + 1 :]
    return "", conversation


def _after_call(steps: list[demo_steps.Step], calls_made: int) -> list[demo_steps.Step]:
    """What follows the step that made the last call."""
    call_positions = [index for index, step in enumerate(steps) if isinstance(step, demo_steps.CallTool)]
    if calls_made == 0:
        return steps
    return steps[call_positions[calls_made - 1] + 1 :] if calls_made <= len(call_positions) else []


def _remark(result: engine.Message) -> str:
    if result.is_error:
        return f"That did not work: {_ending(result.text)}"
    lines = result.text.splitlines()
    match result.tool:
        case "list_dir":
            return f"The folder has {_counted(lines, 'entry', 'entries')}: {_quoted(', '.join(lines))}"
        case "read_file":
            if not lines:
                return "The file is empty."
            return f"The file has {_counted(lines, 'line', 'lines')}; the first is: {_quoted(lines[0])}"
        case _:
            return f"It says: {_ending(result.text)}"


def _counted(things: list[str], one: str, many: str) -> str:
    return f"{len(things)} {one if len(things) == 1 else many}"


def _quoted(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]} …"


def _ending(text: str) -> str:
    """On one line, and the end rather than the beginning: that is where a command's exit code stands."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_QUOTE else f"… {line[-_LONGEST_QUOTE:]}"


def _spoken_words(step: demo_steps.Say | demo_steps.Count) -> Iterator[str]:
    if isinstance(step, demo_steps.Say):
        return _words(step.text)
    return (f"{number} " if number < step.upto else f"{number}" for number in range(1, step.upto + 1))


def _words(text: str) -> Iterator[str]:
    """The text in pieces of one word and the space behind it; joined they are the text again."""
    return (found.group() for found in re.finditer(r"\s*\S+\s*", text))
