"""rep 10, over signals: a user who cancels, a runtime that obeys, and one that does not."""

import signal
import subprocess
import time
from typing import Any

import pytest
from tests.conformance.rep import closed
from tests.conformance.rep.peers import HELLO, NAP, TIMEOUT, TmCommand, get_foreign_runtime


def cancel_command(tm: TmCommand, document: dict[str, Any], *arguments: str) -> tuple[int, dict[str, Any]]:
    """How the command ended that got the signal once its run was under way."""
    with tm.start("run", tm.write("flow.json", document), "--json", *arguments) as process:
        try:
            _wait_until_running(tm, process, is_ours=not arguments)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert b"Traceback" not in stderr
    assert tm.list_processes() == []
    return process.returncode, closed.parse_outcome(stdout)


def _wait_until_running(tm: TmCommand, process: "subprocess.Popen[bytes]", *, is_ours: bool) -> None:
    assert process.stderr is not None
    if is_ours:
        said = b""
        while b": started" not in said:
            line = process.stderr.readline()
            said += line
            assert line, said
    else:
        while "Runtime.Poll" not in tm.list_methods():
            assert process.poll() is None
            time.sleep(0.01)


@pytest.mark.requirement("rep:cancel:once", "rep:cancel:params", "rep:settled:cancelled", "rep:exits:cancelled")
def test_the_runtime_is_asked_once_and_its_own_end_is_part_of_the_outcome(tm_command: TmCommand) -> None:
    code, told = cancel_command(tm_command, HELLO, "--executor-path", get_foreign_runtime("obeys_cancel"))

    error = told["summary"]["error"]
    assert (code, told["status"], error["code"], error["data"]["cause"]) == (4, "failed", 3001, "Cancelled")
    assert error["data"]["details"]["error"]["code"] == 2001
    assert [event["message"] for event in told["events"]] == ["the last one"], "what was told after the cancel is kept"
    asked = [request for request in tm_command.read_requests() if request["method"] == "Runtime.Cancel"]
    assert [request["params"] for request in asked] == [{"run_id": tm_command.read_requests()[1]["params"]["options"]["run_id"]}]


@pytest.mark.requirement("rep:cancel:ends", "rep:settled:cancelled", "rep:exits:cancelled", "rep:events:ends")
def test_our_runtime_obeys(tm_command: TmCommand) -> None:
    code, told = cancel_command(tm_command, NAP)

    error = told["summary"]["error"]
    assert (code, told["status"], error["code"], error["data"]["cause"]) == (4, "failed", 3001, "Cancelled")
    assert [event["state"] for event in told["events"]] == ["started", "failed"]
    assert told["events"][-1]["error"]["data"]["cause"] == "Cancelled"
    assert (told["summary"]["completed_steps"], told["summary"]["failed_steps"]) == (0, 1)


@pytest.mark.requirement("rep:cancel:five-seconds", "rep:lifecycle:no-leftovers")
def test_a_runtime_that_does_not_obey_has_five_seconds(tm_command: TmCommand) -> None:
    code, told = cancel_command(tm_command, HELLO, "--executor-path", get_foreign_runtime("ignores_cancel"))

    error = told["summary"]["error"]
    assert (code, error["code"], error["data"]["cause"]) == (4, 3001, "Cancelled")
    assert error["message"] == "the run was cancelled; the runtime did not stop within 5 s and was ended"
    assert tm_command.list_methods().count("Runtime.Cancel") == 1
