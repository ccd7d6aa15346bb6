"""The names of commands in stored fingerprints and between nodes do not follow the class names."""

from typing import get_args

import pytest

from switchtower.core import commands

CASES = (
    (
        commands.StartRemoteCall(session_id="ses_1", errand_id="req_1", tool="rpc.fs.read", args={}),
        "53bb77248c0b8efa08b3c2fd082aeeb26ca07ecdf04c6b19c7a85bc61df71ce6",
    ),
    (
        commands.FinishRemoteCall(session_id="ses_1", errand_id="req_1", ok=True, duration_ms=3),
        "1e2f52a6bdd8f9b8801880b86da26fea578ab13ef0fa67753923ae54337766d7",
    ),
    (commands.CancelRun(session_id="ses_1"), "97b6188d7bebc02f0fc72d4993f0732c09b613199c732ab66c10253dfdb6a939"),
)


@pytest.mark.parametrize(("command", "expected"), CASES, ids=["start", "finish", "cancel"])
def test_a_command_has_the_fingerprint_that_earlier_releases_stored(command: commands.AnyCommand, expected: str) -> None:
    assert commands.compute_fingerprint(command) == expected


def test_every_command_has_its_own_wire_name() -> None:
    kinds = get_args(commands.AnyCommand)
    assert len({kind.wire_name for kind in kinds}) == len(kinds)
