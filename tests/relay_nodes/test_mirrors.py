"""What a host tells is acknowledged when the session's home has stored it, and not before: whatever else is answered, it is
stored later or the host still has it."""

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.relay_nodes.parts import City, city

from switchtower.core import commands, errors, events, tower
from switchtower.protocols.relay import messages, names
from switchtower.protocols.relay.hub.mirror import Mirror


class FarAway:
    """A tower whose session has its home on a node that is not always reached. `forgets` stores and does not say so."""

    def __init__(self, made: City, refusals: list[errors.CoreError], *, forgets: bool) -> None:
        self._runtime = made.house.runtime
        self._refusals = refusals
        self._forgets = forgets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def submit(self, command: commands.AnyCommand, done: tower.Done) -> None:
        if not self._refusals:
            self._runtime.submit(command, done)
            return
        refusal = self._refusals.pop(0)
        if self._forgets:
            self._runtime.submit(command, lambda _: done(refusal))
        else:
            done(refusal)


def told(seq: int) -> messages.Envelope:
    begins = {"tool": "vim", "cwd": "/far", "command": "vim x"}
    data = begins if seq == 1 else {"stream": "stdout", "text": f"line {seq}\n"}
    type_ = "run.started" if seq == 1 else "run.output"
    return messages.Envelope(type=type_, run_id="run-7", seq=seq, data=msgspec.Raw(msgspec.json.encode(data)))


@pytest.mark.parametrize("forgets", [False, True], ids=["was not reached", "was reached and did not say so"])
@pytest.mark.parametrize("refusal", [errors.HomeUnreachable, errors.JournalUnavailable, errors.Fenced])
async def test_what_a_home_did_not_confirm_is_stored_once_and_acknowledged_then(
    tmp_path: Path, refusal: type[errors.CoreError], forgets: bool
) -> None:
    async with city(tmp_path, "a") as made:
        acks: asyncio.Queue[int] = asyncio.Queue()
        far = FarAway(made, [refusal()], forgets=forgets)
        mirror = Mirror(cast(tower.Tower, far), "h", lambda run_id, seq: acks.put_nowait(seq))
        mirror.take([told(1), told(2)])
        async with asyncio.timeout(60):
            assert await acks.get() == 2
            mirror.take([told(3)])
            assert await acks.get() == 3
        outlet = await made.house.attached(names.session_of("run-7"))
        await outlet.next_of(events.ToolProgressed, 2)
        assert [event.relayed.seq for event in outlet.told if event.relayed is not None] == [1, 2, 3]
        mirror.close()


async def test_what_was_never_confirmed_is_not_acknowledged(tmp_path: Path) -> None:
    async with city(tmp_path, "a") as made:
        acks: list[int] = []
        far = FarAway(made, [errors.HomeUnreachable()], forgets=False)
        mirror = Mirror(cast(tower.Tower, far), "h", lambda run_id, seq: acks.append(seq))
        mirror.take([told(1)])
        await made.until(lambda: far._refusals == [])
        mirror.close()  # the host has gone, and will tell it again elsewhere
        later = Mirror(made.house.runtime, "h", lambda run_id, seq: acks.append(seq + 100))
        later.take([told(1)])
        await made.until(lambda: acks != [])
        assert acks == [101]
        later.close()
