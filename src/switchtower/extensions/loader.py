"""Finds extensions: our own, and those of installed packages. Nothing is searched until a command is needed.

A plugin that cannot be loaded, or whose commands cannot be called, is reported and left out; it never affects anything else.
Loading runs the plugins' modules, once, on a separate thread: a module that never returns delays callers only briefly.
"""

import logging
import re
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from switchtower.extensions import port

if TYPE_CHECKING:
    from importlib import metadata  # slow to import, and most daemons never need a command

SHIPPED = {"brief": "switchtower.extensions.brief:EXTENSION", "review": "switchtower.extensions.review:EXTENSION"}
"""Our own extensions are entry points as well. Because they are listed here too, they exist in a checkout whose metadata is older
than they are.
"""

LOAD_TIMEOUT = 10.0
"""The seconds from the first call on that callers wait for plugins; a plugin that is not loaded by then is unavailable for
now.
"""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LONGEST_REASON = 300
_LONGEST_DESCRIPTION = 200

log = logging.getLogger(__name__)


class LoadedCommand(Struct, frozen=True):
    """A command that can be called, and its owner."""

    command: port.ExtensionCommand
    extension: str
    path: str
    """The entry point's own value: `module:attribute`."""


class BrokenExtension(Struct, frozen=True):
    name: str
    path: str
    reason: str


class LoadedExtensions(Struct, frozen=True):
    offers: dict[str, LoadedCommand]
    """The commands by name."""
    broken: tuple[BrokenExtension, ...]


class ExtensionLoader:
    def __init__(self, timeout: float = LOAD_TIMEOUT) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._started_at: float | None = None
        self._ended = threading.Event()
        self._offers: dict[str, LoadedCommand] = {}
        self._broken: list[BrokenExtension] = []
        self._loading: BrokenExtension | None = None
        """The plugin that is being loaded, in the form in which it is reported when it takes too long."""

    def load(self) -> LoadedExtensions:
        """Blocks while plugins are loaded, but not for longer than the time limit, however many callers wait."""
        with self._lock:
            if self._started_at is None:
                self._started_at = time.monotonic()
                threading.Thread(target=self._load, name="extensions", daemon=True).start()
        self._ended.wait(max(0.0, self._started_at + self._timeout - time.monotonic()))
        with self._lock:
            late = () if self._loading is None else (self._loading,)
            return LoadedExtensions(dict(self._offers), (*self._broken, *late))

    def _load(self) -> None:
        try:
            for entry in _list_entry_points():
                with self._lock:
                    self._loading = BrokenExtension(to_one_line(entry.name), entry.value, "it is still being loaded")
                offers, reason = _load_entry(entry)
                with self._lock:
                    self._loading = None
                    for offer in offers:
                        if (first := self._offers.setdefault(offer.command.name, offer)) is not offer:
                            reason = f"`/{offer.command.name}` is taken by the extension `{first.extension}`"
                    if reason is not None:
                        self._broken.append(_make_broken(entry, reason))
        except Exception:
            log.exception("not all extensions could be looked for")
        finally:
            self._ended.set()


def to_one_line(text: object) -> str:
    """Returns foreign text as one line."""
    try:
        line = " ".join(str(text)[: _LONGEST_DESCRIPTION * 4].split())
    except Exception:  # a foreign exception may not even be printable
        line = "it cannot say what it is"
    shown = "".join(character if character.isprintable() else "?" for character in line)
    return shown if len(shown) <= _LONGEST_DESCRIPTION else f"{shown[: _LONGEST_DESCRIPTION - 1]}…"


class _InvalidExtension(Exception):
    """A plugin provides a command that cannot be called."""


def _load_entry(entry: "metadata.EntryPoint") -> tuple[list[LoadedCommand], str | None]:
    """Returns the entry's commands, or the reason why it has none."""
    try:
        return list(_list_commands(entry)), None
    except _InvalidExtension as unusable:
        return [], str(unusable)
    except (Exception, SystemExit) as error:  # a module may do anything when it is loaded
        log.warning("the extension %s raised when it was loaded", entry.name, exc_info=error)
        return [], f"{type(error).__name__}: {to_one_line(error)}"


def _list_entry_points() -> "Iterator[metadata.EntryPoint]":
    """Yields our own entry points first: the first one keeps a name that two claim."""
    from importlib import metadata

    ours = [metadata.EntryPoint(name, value, port.GROUP) for name, value in sorted(SHIPPED.items())]
    yield from ours
    known = {(entry.name, entry.value) for entry in ours}
    for entry in sorted(metadata.entry_points(group=port.GROUP), key=lambda entry: (entry.name, entry.value)):
        if (entry.name, entry.value) not in known:
            known.add((entry.name, entry.value))
            yield entry


def _list_commands(entry: "metadata.EntryPoint") -> Iterator[LoadedCommand]:
    loaded = entry.load()
    extension = loaded if isinstance(loaded, port.Extension) or not callable(loaded) else loaded()
    if not isinstance(extension, port.Extension):
        raise _InvalidExtension(f"it is a {type(extension).__name__}, not an `Extension`")
    if not isinstance(extension.name, str) or not NAME.fullmatch(extension.name):
        raise _InvalidExtension(f"{extension.name!r} is not a name for an extension")
    for command in extension.commands:
        if not isinstance(command, port.ExtensionCommand) or not callable(command.run):
            raise _InvalidExtension("one of its commands is no `Command`")
        if not isinstance(command.name, str) or not NAME.fullmatch(command.name):
            raise _InvalidExtension(f"{command.name!r} is not a name for a command")
        yield LoadedCommand(command, extension.name, entry.value)


def _make_broken(entry: "metadata.EntryPoint", reason: str) -> BrokenExtension:
    reason = to_one_line(reason[:_LONGEST_REASON])
    log.warning("the extension %s cannot be used: %s", entry.name, reason)
    return BrokenExtension(to_one_line(entry.name), entry.value, reason)
