"""The slash commands: their definitions, the parser and completion. Pure.

A name that is not one of our commands may be a skill or prompt, which the daemon expands; completion offers those too. Any other
name is refused with a suggestion, rather than sent to a model that does not know it either.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from switchtower.config import POLICIES

THINKING = ("off", "minimal", "low", "medium", "high", "xhigh")
FORMATS = ("markdown", "html", "jsonl")


class SlashCommand(NamedTuple):
    name: str
    about: str
    arguments: str = ""
    choices: tuple[str, ...] = ()
    """The possible arguments, if they are fixed."""
    aliases: tuple[str, ...] = ()


COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("help", "keys and commands", aliases=("?",)),
    SlashCommand("new", "begin another session, here or in a folder", "[FOLDER]", aliases=("clear",)),
    SlashCommand("model", "choose the model", "[NAME]"),
    SlashCommand("provider", "choose the provider, with its usual model", "[NAME]"),
    SlashCommand("policy", "what may happen unasked", "[PROFILE]", POLICIES),
    SlashCommand("thinking", "how long the model thinks", "[LEVEL]", THINKING),
    SlashCommand("preset", "begin a new session as a preset says", "[NAME]"),
    SlashCommand("session", "go to a session, or say all about this one", "[NAME]"),
    SlashCommand("sessions", "the list of sessions"),
    SlashCommand("inbox", "what waits for a decision", aliases=("approvals",)),
    SlashCommand("skills", "skills and prompts that can be used here"),
    SlashCommand("exec", "run a program in a terminal of its own", "COMMAND"),
    SlashCommand("queue", "send a message when this run has succeeded", "TEXT"),
    SlashCommand("cancel", "stop the run", aliases=("stop",)),
    SlashCommand("undo", "take back what the last run changed"),
    SlashCommand("redo", "make it again"),
    SlashCommand("diff", "what the session has changed"),
    SlashCommand("compact", "summarise the conversation to make room", "[INSTRUCTIONS]"),
    SlashCommand("fork", "go on from here in a second session", "[TITLE]"),
    SlashCommand("rename", "call the session something", "TITLE"),
    SlashCommand("delete", "remove the session for good"),
    SlashCommand("search", "find text in all sessions", "TEXT"),
    SlashCommand("export", "write the session to a file", "[FORMAT] [FILE]", FORMATS),
    SlashCommand("copy", "copy the last answer"),
    SlashCommand("theme", "light or dark", "[light|dark]", ("dark", "light")),
    SlashCommand("exit", "leave; what runs goes on", aliases=("quit", "q")),
)
_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


class SlashInput(NamedTuple):
    """One of our commands, with the text after it."""

    command: SlashCommand
    rest: str


class UnknownSlashCommand(NamedTuple):
    name: str
    suggestion: str | None


class SlashOption(NamedTuple):
    """One completion: the replacement for the word, and its description."""

    text: str
    about: str = ""


def parse_slash(text: str, templates: Iterable[str] = ()) -> SlashInput | UnknownSlashCommand | None:
    """Parses a command. Returns None for text that goes to the model: a path (`/etc/hosts is …`) and a skill are not commands."""
    if not text.startswith("/") or text.startswith("//"):
        return None
    word, _, rest = text[1:].partition(" ")
    word, newline, more = word.partition("\n")
    rest = (f"{newline}{more} {rest}" if newline else rest).strip()
    if (command := _BY_NAME.get(word.lower())) is not None:
        return SlashInput(command, rest)
    templates = list(templates)
    if not word or "/" in word or "." in word or word in templates:
        return None
    near = get_close_matches(word.lower(), [*_BY_NAME, *templates], n=1)
    return UnknownSlashCommand(word, near[0] if near else None)


def complete_slash(text: str, templates: Sequence[SlashOption] = (), values: Sequence[SlashOption] = ()) -> list[SlashOption]:
    """Returns completions of the text. `values` are arguments for this command that the app knows, such as models."""
    if not text.startswith("/") or "\n" in text:
        return []
    word, space, rest = text[1:].partition(" ")
    if not space:
        found = [SlashOption(f"/{one.name}", _describe_command(one)) for one in COMMANDS if one.name.startswith(word.lower())]
        found += [SlashOption(f"/{one.text}", one.about) for one in templates if one.text.startswith(word)]
        return found
    command = _BY_NAME.get(word.lower())
    if command is None or " " in rest:
        return []
    offered = [*(SlashOption(choice) for choice in command.choices), *values]
    wanted = rest.casefold()
    starting = [one for one in offered if one.text.casefold().startswith(wanted)]
    inside = [one for one in offered if one not in starting and wanted in one.text.casefold()]
    return [SlashOption(f"/{word} {one.text}", one.about) for one in (*starting, *inside)]


def _describe_command(command: SlashCommand) -> str:
    return f"{command.arguments}  {command.about}" if command.arguments else command.about
