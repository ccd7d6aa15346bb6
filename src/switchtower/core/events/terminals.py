"""The events of a program in a terminal."""

from typing import ClassVar

from switchtower.core.events.values import Actor, Event


class TerminalTyped(Event, frozen=True):
    """A client sent the program a text. `text` is the part of it that can be shown; `sha256` is the hash of all of it."""

    kind: ClassVar[str] = "terminal.typed"
    input_id: str
    text: str
    sha256: str
    by: Actor


class TerminalKeysTyped(Event, frozen=True):
    """A client typed at the terminal, key by key: only the number of characters is stored."""

    kind: ClassVar[str] = "terminal.keys"
    count: int
    by: Actor


class TerminalResized(Event, frozen=True):
    kind: ClassVar[str] = "terminal.resized"
    cols: int
    rows: int
    by: Actor


class TerminalEchoChanged(Event, frozen=True):
    """The terminal turned echo on or off. While it is off, the program usually asks for a password."""

    kind: ClassVar[str] = "terminal.echoed"
    on: bool


class PromptShown(Event, frozen=True):
    """The program waits for input. `reason` is `permission`, `choice`, `prompt` or `unknown`."""

    kind: ClassVar[str] = "terminal.prompt"
    reason: str
    prompt: str = ""
    approval_id: str | None = None
    """The approval that was made of it, when it is a yes-or-no question."""


class PromptCleared(Event, frozen=True):
    """The program no longer waits for input."""

    kind: ClassVar[str] = "terminal.prompt_gone"


class ScreenCaptured(Event, frozen=True):
    """The whole screen as a text that paints it. Together with the output since, it is all that a late client needs."""

    kind: ClassVar[str] = "terminal.screen"
    prunable: ClassVar[bool] = True
    text: str
    cols: int
    rows: int
