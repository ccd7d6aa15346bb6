"""The result type of the rules."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from switchtower.core import events as core_events

EphemeralInput = core_events.Program | core_events.Flow | str | None
"""Data that the journal does not hold, for the run's engine alone: typed text, or a program or flow as it was requested."""


class Decision(Struct, frozen=True):
    """The events to be journalled, their run, and the outcome that the client gets once they are committed."""

    events: Sequence[core_events.AnyEvent]
    run_id: str | None = None
    outcome: dict[str, Any] = {}
    following: "Decision | None" = None
    """A further decision in the same commit, for another run."""
    ephemeral_input: EphemeralInput = None
