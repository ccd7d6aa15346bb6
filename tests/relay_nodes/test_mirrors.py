"""What a host tells is acknowledged when the session's home has stored it, and not before: whatever else is answered, it is
stored later or the host still has it."""

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.relay_nodes.parts import RelayCluster, open_cluster

from switchtower.core import commands, errors, events
from switchtower.core.ports import session_service
from switchtower.protocols.relay import messages, wire_values
from switchtower.protocols.relay.hub.mirror import Mirror


class UnreachableOwnership:
    """A tower whose session has its home on a node that is not always reached. `forgets` stores and does not say so."""

    def __init__(self, made: RelayCluster, refusals: list[errors.CoreError], *, forgets: bool) -> None:
        self._runtime = made.runtime.runtime
        self._refusals = refusals
        self._forgets = forgets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def submit(self, command: commands.AnyCommand, done: session_service.OutcomeCallback) -> None:
        if not self._refusals:
            self._runtime.submit(command, done)
            return
        refusal = self._refusals.pop(0)
        if self._forgets:
            self._runtime.submit(command, lambda _: done(refusal))
        else:
            done(refusal)


def make_report(seq: int) -> messages.Envelope:
    begins = {"tool": "vim", "cwd": "/far", "command": "vim x"}
    data = begins if seq == 1 else {"stream": "stdout", "text": f"line {seq}\n"}
    type_ = "run.started" if seq == 1 else "run.output"
    return messages.Envelope(type=type_, run_id="run-7", seq=seq, data=msgspec.Raw(msgspec.json.encode(data)))


@pytest.mark.parametrize("forgets", [False, True], ids=["was not reached", "was reached and did not say so"])
@pytest.mark.parametrize("refusal", [errors.OwnerUnreachable, errors.JournalUnavailable, errors.Fenced])
async def test_what_a_home_did_not_confirm_is_stored_once_and_acknowledged_then(
    tmp_path: Path, refusal: type[errors.CoreError], forgets: bool
) -> None:
    async with open_cluster(tmp_path, "a") as made:
        acks: asyncio.Queue[int] = asyncio.Queue()
        far = UnreachableOwnership(made, [refusal()], forgets=forgets)
        mirror = Mirror(cast(session_service.SessionService, far), "h", lambda run_id, seq: acks.put_nowait(seq))
        mirror.add([make_report(1), make_report(2)])
        async with asyncio.timeout(60):
            assert await acks.get() == 2
            mirror.add([make_report(3)])
            assert await acks.get() == 3
        outlet = await made.runtime.attach_subscriber(wire_values.parse_run_id("run-7"))
        await outlet.wait_for_event(events.ToolProgressed, 2)
        assert [event.relayed.seq for event in outlet.told if event.relayed is not None] == [1, 2, 3]
        mirror.close()


async def test_what_was_never_confirmed_is_not_acknowledged(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a") as made:
        acks: list[int] = []
        far = UnreachableOwnership(made, [errors.OwnerUnreachable()], forgets=False)
        mirror = Mirror(cast(session_service.SessionService, far), "h", lambda run_id, seq: acks.append(seq))
        mirror.add([make_report(1)])
        await made.wait_until(lambda: far._refusals == [])
        mirror.close()  # the host has gone, and will tell it again elsewhere
        later = Mirror(made.runtime.runtime, "h", lambda run_id, seq: acks.append(seq + 100))
        later.add([make_report(1)])
        await made.wait_until(lambda: acks != [])
        assert acks == [101]
        later.close()
