"""A program in a terminal."""

from typing import ClassVar

from switchtower.core.events.values import Actor, Event


class TerminalTyped(Event, frozen=True):
    """Somebody sent the program a text. `text` is what can be shown of it; `sha256` is of all of it."""

    kind: ClassVar[str] = "terminal.typed"
    input_id: str
    text: str
    sha256: str
    by: Actor


class TerminalKeysTyped(Event, frozen=True):
    """Somebody typed at the terminal, key by key: what it was is not kept, only how much."""

    kind: ClassVar[str] = "terminal.keys"
    count: int
    by: Actor


class TerminalResized(Event, frozen=True):
    kind: ClassVar[str] = "terminal.resized"
    cols: int
    rows: int
    by: Actor


class TerminalEchoChanged(Event, frozen=True):
    """Whether the terminal shows what is typed. Where it does not, somebody is asked for a password."""

    kind: ClassVar[str] = "terminal.echoed"
    on: bool


class PromptShown(Event, frozen=True):
    """The program waits for somebody. `reason` is `permission`, `choice`, `prompt` or `unknown`."""

    kind: ClassVar[str] = "terminal.prompt"
    reason: str
    prompt: str = ""
    approval_id: str | None = None
    """The question that was made of it, when it is one of yes or no."""


class PromptCleared(Event, frozen=True):
    """The program waits no longer."""

    kind: ClassVar[str] = "terminal.prompt_gone"


class ScreenCaptured(Event, frozen=True):
    """The whole screen as a text that paints it. With what was put out since, it is all that a late joiner needs."""

    kind: ClassVar[str] = "terminal.screen"
    prunable: ClassVar[bool] = True
    text: str
    cols: int
    rows: int
