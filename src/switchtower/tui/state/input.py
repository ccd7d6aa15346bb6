"""Completion of slash commands and file mentions (`@path`) at the cursor, and the history of sent messages. Pure.

The slash commands: their definitions, the parser and completion. Pure.

A name that is not one of our commands may be a skill or prompt, which the daemon expands; completion offers those too. Any other
name is refused with a suggestion, rather than sent to a model that does not know it either."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from heapq import nsmallest
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


MOST_OPTIONS = 50
LONGEST_MENTION = 1_024
"""The maximum number of characters before the cursor that are searched for a mention."""
# The daemon recognises a mention only at the start of a word: an address such as me@example.com is not one.
_BEING_TYPED = re.compile(r"(?:^|(?<=[\s(\[{,;]))@(?:\"([^\"\n]*)|([^\s\"]*))$")


class FileMention(NamedTuple):
    """A mention that is being typed. `start` is the position of the `@`."""

    start: int
    wanted: str


def find_mention(before_cursor: str) -> FileMention | None:
    cut = max(0, len(before_cursor) - LONGEST_MENTION)
    found = _BEING_TYPED.search(before_cursor[cut:])
    if found is None or (cut and not found.start()):
        return None
    return FileMention(cut + found.start(), found[1] if found[1] is not None else found[2] or "")


def format_mention(path: str) -> str:
    """Formats a mention as the daemon parses it."""
    return f'@"{path}"' if re.search(r"[\s\"]", path) else f"@{path}"


def rank_files(wanted: str, paths: Iterable[str]) -> list[str]:
    """Returns the most likely files, best first: by the start of the name, by any part of it, by its letters in order."""
    wanted = wanted.casefold()
    ranked = ((rank, len(path), path) for path in paths if (rank := _rank(wanted, path.casefold())) is not None)
    return [path for _, _, path in nsmallest(MOST_OPTIONS, ranked)]


def _rank(wanted: str, path: str) -> int | None:
    if not wanted:
        return path.count("/")
    if path.startswith(wanted):
        return 0
    if path.rstrip("/").rsplit("/", 1)[-1].startswith(wanted):
        return 1
    if wanted in path:
        return 2
    letters = iter(path)
    return 3 if all(letter in letters for letter in wanted) else None


class CompletionOffer(NamedTuple):
    """Completions for the text before the cursor, of which the part from `start` on is replaced."""

    start: int
    options: list[SlashOption]


NO_OFFER = CompletionOffer(0, [])


def find_offer(
    before_cursor: str,
    *,
    templates: Sequence[SlashOption] = (),
    values: Sequence[SlashOption] = (),
    files: Iterable[str] = (),
) -> CompletionOffer:
    if before_cursor.startswith("/") and (found := complete_slash(before_cursor, templates, values)):
        # A command that is already complete needs no completion.
        return NO_OFFER if len(found) == 1 and found[0].text == before_cursor else CompletionOffer(0, found)
    if (mention := find_mention(before_cursor)) is not None:
        paths = rank_files(mention.wanted, files)
        if paths == [mention.wanted]:
            return NO_OFFER
        return CompletionOffer(mention.start, [SlashOption(format_mention(path)) for path in paths])
    return NO_OFFER


MOST_ENTRIES = 500
LONGEST_ENTRY = 20_000
"""The maximum number of characters in a remembered message."""


class InputHistory:
    def __init__(self, earlier: Iterable[str] = ()) -> None:
        self._entries = [text for text in earlier if text][-MOST_ENTRIES:]
        self._index: int | None = None
        self._draft = ""

    @property
    def entries(self) -> list[str]:
        return list(self._entries)

    @property
    def is_browsing(self) -> bool:
        return self._index is not None

    def add(self, text: str) -> bool:
        """Adds a sent message and returns whether it is new and worth keeping."""
        self.reset()
        if not text.strip() or len(text) > LONGEST_ENTRY or (self._entries and self._entries[-1] == text):
            return False
        self._entries.append(text)
        del self._entries[:-MOST_ENTRIES]
        return True

    def reset(self) -> None:
        """Stops browsing, for example when the user types."""
        self._index = None
        self._draft = ""

    def go_back(self, current: str) -> str | None:
        """Returns the previous message, or None at the oldest one. The current draft is kept for the way forward."""
        if self._index is None:
            if not self._entries:
                return None
            self._draft, self._index = current, len(self._entries)
        if self._index == 0:
            return None
        self._index -= 1
        return self._entries[self._index]

    def go_forward(self) -> str | None:
        """Returns the next message and finally the draft; None when the user is not browsing."""
        if self._index is None:
            return None
        self._index += 1
        if self._index < len(self._entries):
            return self._entries[self._index]
        draft = self._draft
        self.reset()
        return draft
