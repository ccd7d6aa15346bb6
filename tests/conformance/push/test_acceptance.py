"""Acceptance criteria: run by the daemon, in the workspace, after the run; and the exit code hint of each outcome."""

from pathlib import Path
from typing import Any

import pytest

from switchtower.host_services import local
from switchtower.testing.push_client import PushClient


async def run_accepted(client: PushClient, workspace: Path, *criteria: dict[str, Any], text: str = "say: done") -> dict[str, Any]:
    """The payload of the run's end."""
    session_id = (await client.start_session(workspace)).session_id
    return (await client.run(session_id, text, acceptance=criteria))[-1].payload


@pytest.mark.requirement("push:acceptance:executed-by-runtime", "push:headless:exit-0-success")
async def test_criteria_that_pass_make_a_success(client_per_transport: PushClient, workspace: Path) -> None:
    payload = await run_accepted(
        client_per_transport,
        workspace,
        {"id": "here", "check": "pwd"},
        {"id": "three", "check": "exit 3", "exitCode": 3, "description": "ends with three"},
        {"id": "both", "check": "printf out; printf err >&2"},
    )
    assert payload["outcome"] == "success"
    assert payload["headless"] == {"exitCodeHint": 0}
    here, three, both = payload["acceptance"]["results"]
    assert here == {"id": "here", "passed": True, "exitCode": 0, "output": f"{workspace}\n"}
    assert three == {"id": "three", "passed": True, "exitCode": 3, "output": ""}
    assert both["output"] == "outerr"
    assert (payload["acceptance"]["total"], payload["acceptance"]["passed"]) == (3, 3)


@pytest.mark.requirement("push:acceptance:failure", "push:headless:exit-4-acceptance")
async def test_a_criterion_that_fails_makes_the_run_fail_with_hint_four(
    client_per_transport: PushClient, workspace: Path
) -> None:
    payload = await run_accepted(
        client_per_transport, workspace, {"id": "yes", "check": "true"}, {"id": "no", "check": "echo why; exit 7"}
    )
    assert payload["outcome"] == "failed"
    assert payload["headless"] == {"exitCodeHint": 4}
    assert payload["acceptance"] == {
        "total": 2,
        "passed": 1,
        "results": [
            {"id": "yes", "passed": True, "exitCode": 0, "output": ""},
            {"id": "no", "passed": False, "exitCode": 7, "output": "why\n"},
        ],
    }


@pytest.mark.requirement("push:acceptance:failure")
async def test_a_command_that_does_not_exist_has_not_passed(client: PushClient, workspace: Path) -> None:
    payload = await run_accepted(client, workspace, {"id": "none", "check": "no-such-command-at-all"})
    (result,) = payload["acceptance"]["results"]
    assert (result["passed"], result["exitCode"]) == (False, 127)


@pytest.mark.requirement("push:acceptance:output-cut")
async def test_output_is_cut_at_two_thousand_characters(client: PushClient, workspace: Path) -> None:
    payload = await run_accepted(
        client,
        workspace,
        {"id": "long", "check": "head -c 5000 /dev/zero | tr '\\0' x"},
        {"id": "just", "check": "head -c 2000 /dev/zero | tr '\\0' y"},
        {"id": "wide", "check": "for i in $(seq 3000); do printf ü; done"},
        {"id": "bytes", "check": "printf '\\377\\376'"},
    )
    long, just, wide, raw = (result["output"] for result in payload["acceptance"]["results"])
    assert len(long) == 2_000
    assert just == "y" * 2_000
    assert len(wide) == 2_000
    assert raw == "\ufffd\ufffd"


@pytest.mark.requirement("push:acceptance:time-limit")
def test_a_check_may_take_two_minutes() -> None:
    assert local.CRITERION_TIMEOUT == 120


@pytest.mark.requirement("push:acceptance:after-the-run")
async def test_criteria_see_what_the_run_did(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id
    await client.send(session_id, "write made.txt: by the run", acceptance=[{"id": "made", "check": "cat made.txt"}])
    await client.decide((await client.read_until("approval_required"))[-1])
    events = await client.read_until("run_complete")
    assert events[-1].payload["acceptance"]["results"][0]["output"] == "by the run"
    phases = [event.payload["phase"] for event in events if event.type == "status"]
    assert phases[-1] == "Checking acceptance"


@pytest.mark.requirement("push:acceptance:after-the-run")
async def test_a_run_that_was_denied_is_not_checked(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id
    await client.send(session_id, "run: true", acceptance=[{"id": "trace", "check": "touch checked"}])
    await client.decide((await client.read_until("approval_required"))[-1], "deny")
    complete = (await client.read_until("run_complete"))[-1]
    assert complete.payload["outcome"] == "denied"
    assert complete.payload["acceptance"] == {"total": 0, "passed": 0, "results": []}
    assert not (workspace / "checked").exists()


@pytest.mark.requirement("push:acceptance:failure")
async def test_checks_in_a_workspace_that_is_gone_have_not_passed(client: PushClient, workspace: Path) -> None:
    root = workspace / "gone"
    root.mkdir()
    session_id = (await client.start_session(root)).session_id
    root.rmdir()
    payload = (await client.run(session_id, "say: done", acceptance=[{"id": "a", "check": "true"}]))[-1].payload
    assert payload["outcome"] == "failed", "it ends before its work begins, and its checks are not run"
    assert payload["acceptance"] == {"total": 0, "passed": 0, "results": []}
    assert payload["headless"] == {"exitCodeHint": 1}
