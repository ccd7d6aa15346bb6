"""What a rule makes of a command."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from switchtower.core import events as core_events

EphemeralInput = core_events.Program | core_events.Flow | str | None
"""What the journal does not hold, for the run's engine alone: a text as it was typed, a program or a flow as it was asked for."""


class Decision(Struct, frozen=True):
    """What is to be journalled, for which run, and what the asker is told once it is."""

    events: Sequence[core_events.AnyEvent]
    run_id: str | None = None
    outcome: dict[str, Any] = {}
    following: "Decision | None" = None
    """What happens with it in one and the same commit, for another run."""
    ephemeral_input: EphemeralInput = None
