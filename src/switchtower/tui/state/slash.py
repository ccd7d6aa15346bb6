"""Commands that begin with a slash: which there are, what was typed, and how it may go on. Pure.

What is no command of ours may be a skill or prompt, which the daemon expands; those are offered like commands. Anything else is
refused with what was probably meant, rather than sent to a model that does not know it either.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from switchtower.config import POLICIES

THINKING = ("off", "minimal", "low", "medium", "high", "xhigh")
FORMATS = ("markdown", "html", "jsonl")


class Command(NamedTuple):
    name: str
    about: str
    arguments: str = ""
    choices: tuple[str, ...] = ()
    """What may stand behind it, where that is known beforehand."""
    aliases: tuple[str, ...] = ()


COMMANDS: tuple[Command, ...] = (
    Command("help", "keys and commands", aliases=("?",)),
    Command("new", "begin another session, here or in a folder", "[FOLDER]", aliases=("clear",)),
    Command("model", "choose the model", "[NAME]"),
    Command("provider", "choose the provider, with its usual model", "[NAME]"),
    Command("policy", "what may happen unasked", "[PROFILE]", POLICIES),
    Command("thinking", "how long the model thinks", "[LEVEL]", THINKING),
    Command("preset", "begin a new session as a preset says", "[NAME]"),
    Command("session", "go to a session, or say all about this one", "[NAME]"),
    Command("sessions", "the list of sessions"),
    Command("inbox", "what waits for a decision", aliases=("approvals",)),
    Command("skills", "skills and prompts that can be used here"),
    Command("exec", "run a program in a terminal of its own", "COMMAND"),
    Command("queue", "send a message when this run has succeeded", "TEXT"),
    Command("cancel", "stop the run", aliases=("stop",)),
    Command("undo", "take back what the last run changed"),
    Command("redo", "make it again"),
    Command("diff", "what the session has changed"),
    Command("compact", "summarise the conversation to make room", "[INSTRUCTIONS]"),
    Command("fork", "go on from here in a second session", "[TITLE]"),
    Command("rename", "call the session something", "TITLE"),
    Command("delete", "remove the session for good"),
    Command("search", "find text in all sessions", "TEXT"),
    Command("export", "write the session to a file", "[FORMAT] [FILE]", FORMATS),
    Command("copy", "copy the last answer"),
    Command("theme", "light or dark", "[light|dark]", ("dark", "light")),
    Command("exit", "leave; what runs goes on", aliases=("quit", "q")),
)
_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


class Typed(NamedTuple):
    """A command of ours with what stands behind it."""

    command: Command
    rest: str


class Unknown(NamedTuple):
    name: str
    suggestion: str | None


class Option(NamedTuple):
    """One way to go on: what the word becomes, and what it means."""

    text: str
    about: str = ""


def parse(text: str, templates: Iterable[str] = ()) -> Typed | Unknown | None:
    """None when it is no command, so that it is said to the model: a path (`/etc/hosts is …`) and a skill are none."""
    if not text.startswith("/") or text.startswith("//"):
        return None
    word, _, rest = text[1:].partition(" ")
    word, newline, more = word.partition("\n")
    rest = (f"{newline}{more} {rest}" if newline else rest).strip()
    if (command := _BY_NAME.get(word.lower())) is not None:
        return Typed(command, rest)
    templates = list(templates)
    if not word or "/" in word or "." in word or word in templates:
        return None
    near = get_close_matches(word.lower(), [*_BY_NAME, *templates], n=1)
    return Unknown(word, near[0] if near else None)


def options(text: str, templates: Sequence[Option] = (), values: Sequence[Option] = ()) -> list[Option]:
    """How the text may go on. `values` are what the app knows that may stand behind this command, such as models."""
    if not text.startswith("/") or "\n" in text:
        return []
    word, space, rest = text[1:].partition(" ")
    if not space:
        found = [Option(f"/{one.name}", _about(one)) for one in COMMANDS if one.name.startswith(word.lower())]
        found += [Option(f"/{one.text}", one.about) for one in templates if one.text.startswith(word)]
        return found
    command = _BY_NAME.get(word.lower())
    if command is None or " " in rest:
        return []
    offered = [*(Option(choice) for choice in command.choices), *values]
    wanted = rest.casefold()
    starting = [one for one in offered if one.text.casefold().startswith(wanted)]
    inside = [one for one in offered if one not in starting and wanted in one.text.casefold()]
    return [Option(f"/{word} {one.text}", one.about) for one in (*starting, *inside)]


def _about(command: Command) -> str:
    return f"{command.arguments}  {command.about}" if command.arguments else command.about
