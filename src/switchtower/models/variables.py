"""The variables that configure providers: what the daemon was started with, and what the owner's shell has handed over since.

Handed over values live in memory only. One provider's variables all come from one place, so that a key is never sent to an
address that was set for another one.
"""

from collections.abc import Mapping

from switchtower.core import errors
from switchtower.models import providers

LONGEST_VALUE = 16_384
SHELL = "your shell"
_BY_PROVIDER = {
    provider.kind: (*provider.key_variables, *([provider.url_variable] if provider.url_variable else []))
    for provider in providers.PROVIDERS.values()
}
_PROVIDER_OF = {name: kind for kind, names in _BY_PROVIDER.items() for name in names}
NAMES = frozenset(_PROVIDER_OF)
"""Nothing else is handed over."""


def select_provider_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The provider variables that a process has and that can be handed over."""
    found = {name: environ.get(name, "").strip() for name in sorted(NAMES)}
    return {name: value for name, value in found.items() if _is_plain(value)}


def _is_plain(value: str) -> bool:
    return 0 < len(value) <= LONGEST_VALUE and value.isascii() and value.isprintable()


class ProviderVariables:
    def __init__(self, environ: Mapping[str, str], place: str = "the daemon's environment") -> None:
        """`place` is whose environment this is, for people."""
        self._place = place
        self.started_with = dict(environ)
        self._handed_over: dict[str, dict[str, str]] = {}
        self.current: Mapping[str, str] = self.started_with

    def __repr__(self) -> str:
        return f"ProviderVariables({', '.join(self._handed_over)})"  # the values are keys

    def add_shell_variables(self, given: Mapping[str, str]) -> bool:
        """Takes what a shell has set; whether that changes something. Raises `InvalidCommand`, which repeats no value."""
        for name, value in given.items():
            if name not in NAMES:
                raise errors.InvalidCommand("only variables of the known providers can be handed over", hint="see docs/models.md")
            if not _is_plain(value):
                raise errors.InvalidCommand(f"the value of `{name}` is not plain text of at most {LONGEST_VALUE} characters")
        before = self.current
        for kind in {_PROVIDER_OF[name] for name in given}:
            self._handed_over[kind] = {name: given[name] for name in _BY_PROVIDER[kind] if name in given}
        replaced = {name for kind in self._handed_over for name in _BY_PROVIDER[kind]}
        kept = {name: value for name, value in self.started_with.items() if name not in replaced}
        self.current = {**kept, **{name: value for values in self._handed_over.values() for name, value in values.items()}}
        return self.current != before

    def describe_source(self, name: str) -> str:
        """Where a variable's value comes from, for people."""
        is_handed_over = name in self._handed_over.get(_PROVIDER_OF.get(name, ""), {})
        return SHELL if is_handed_over else self._place
