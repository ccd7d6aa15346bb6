"""rep 4 and 10: whatever a runtime does, there is an exact error, an exit code, and nothing left of it."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.contract_proc.driving import (
    RUNTIMES,
    drive,
    drive_order,
    find_run_processes,
    is_cancelled,
    make_order,
    read_notes,
    wait_until_asked,
)
from tests.tools.running.watching import is_alive

from switchtower.protocols.rep import client, driver, errors


def get_transport_error(ended: client.FlowRunOutcome) -> dict[str, Any]:
    assert (ended.status, ended.exit_code) == ("failed", errors.RepExitCode.RUNTIME_INTERNAL)
    assert ended.error is not None
    assert ended.error["code"] == errors.RepErrorCode.BROKEN_TRANSPORT
    return ended.error


RESULT = '"result": {"version": "1.0.0", "step_kinds": ["log"], "limits": {}}'


@pytest.mark.requirement("rep:contract:transport", "rep:errors:transport", "rep:envelope:wrong-id", "rep:transport:unasked")
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{nonsense", "wrote what is no answer"),
        ("Starting up…".encode().decode("latin-1"), "wrote what is no answer"),
        ("\xff\xfe\x01\x80", "wrote what is no answer"),
        ('{"jsonrpc": "2.0", "id": 1, "result": {"version": "\xff"}}', "no answer|something else"),
        ('[{"jsonrpc": "2.0", "id": 1, ' + RESULT + "}]", "wrote what is no answer"),
        ('{"jsonrpc": "2.0", "id": 2, ' + RESULT + "}", "answered another request than the one with id 1"),
        ('{"jsonrpc": "2.0", "id": "1", ' + RESULT + "}", "answered another request"),
        ('{"jsonrpc": "2.0", "id": true, ' + RESULT + "}", "wrote what is no answer"),
        ('{"jsonrpc": "2.0", "id": null, ' + RESULT + "}", "answered another request"),
        ('{"jsonrpc": "2.0", ' + RESULT + "}", "answered another request"),
        ('{"jsonrpc": "1.0", "id": 1, ' + RESULT + "}", "another version of JSON-RPC"),
        ('{"jsonrpc": "2.0", "id": 1}', "neither a result nor an error"),
        ('{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}, ' + RESULT + "}", "both a result and an error"),
        ('{"jsonrpc": "2.0", "id": 1, "error": "no"}', "wrote what is no answer"),
        ('{"jsonrpc": "2.0", "id": 1, "error": {"message": "no code"}}', "wrote what is no answer"),
        ('{"jsonrpc": "2.0", "method": "Runtime.Log", "params": {}}', "answered another request"),
        ('{"jsonrpc": "2.0", "id": 1, "result": ' + "[" * 50_000 + "]" * 50_000 + "}", "nested too deep|something else"),
    ],
    ids=range(17),
)
async def test_a_line_that_is_no_answer_breaks_the_transport(line: str, complaint: str) -> None:
    error = get_transport_error(await drive("says", env={"LINE": line}))

    assert any(part in error["message"] for part in complaint.split("|"))
    assert len(error["message"]) < 1000


@pytest.mark.requirement("rep:transport:unasked")
async def test_a_second_answer_breaks_the_transport() -> None:
    error = get_transport_error(await drive("answers_twice"))

    assert error["message"].startswith("the runtime wrote a line without a request")


@pytest.mark.requirement("rep:poll:malformed")
@pytest.mark.parametrize(
    "result",
    [
        {"status": "sleeping", "events": [], "summary": {}},
        {"events": []},
        {"status": None},
        {"status": "running", "events": {"type": "log"}},
        {"status": "running", "events": "none"},
        {"status": "running", "events": ["started"]},
        {"status": "completed", "summary": "fine"},
        ["completed"],
        None,
    ],
)
async def test_a_poll_that_is_answered_with_something_else_breaks_the_transport(result: Any) -> None:
    error = get_transport_error(await drive("polls_say", env={"RESULT": json.dumps(result)}))

    assert error["message"].startswith("the runtime answered something else than REP has there: ")


@pytest.mark.requirement("rep:poll:optional")
@pytest.mark.parametrize("result", [{"status": "completed"}, {"status": "completed", "events": None, "summary": None}])
async def test_a_poll_may_leave_out_what_is_of_no_use(result: Any) -> None:
    ended = await drive("polls_say", env={"RESULT": json.dumps(result)})

    assert (ended.status, ended.summary, ended.events) == ("completed", {}, [])


@pytest.mark.requirement("rep:contract:transport", "rep:errors:transport")
async def test_half_a_line_and_an_end_tell_the_exit_code_and_the_last_errors() -> None:
    error = get_transport_error(await drive("half_a_line"))

    assert error["message"] == "the runtime ended with exit code 3"
    assert error["data"]["details"] == {"exit_code": 3, "stderr": "out of memory"}


@pytest.mark.requirement("rep:settled:eof-at-once")
async def test_an_exit_at_once_is_noticed_at_once() -> None:
    error = get_transport_error(await drive("exits_at_once", timeout_s=1e6))

    assert error["message"] == "the runtime ended with exit code 0"


@pytest.mark.requirement("rep:errors:no-secrets", "rep:poll:drained")
async def test_a_death_in_the_middle_keeps_what_was_heard_and_hides_secrets() -> None:
    ended = await drive("dies_mid_run")

    error = get_transport_error(ended)
    assert error["message"] == "the runtime ended with exit code 137"
    assert error["data"]["details"]["exit_code"] == 137
    assert error["data"]["details"]["stderr"].startswith("fatal: password=")
    assert "swordfish" not in json.dumps(ended.make_report())
    assert [event["message"] for event in ended.events] == ["still here"]
    assert ended.summary["completed_steps"] == 4


@pytest.mark.requirement("rep:envelope:too-long")
async def test_a_line_without_an_end_breaks_the_transport() -> None:
    assert "more than 16777216 bytes" in get_transport_error(await drive("long_line"))["message"]


@pytest.mark.requirement("rep:transport:stderr-drained")
async def test_a_flood_of_errors_stalls_nobody() -> None:
    assert (await drive("noisy")).status == "completed"


@pytest.mark.requirement("rep:transport:stderr-drained")
async def test_of_a_flood_of_errors_only_the_end_is_kept() -> None:
    told = get_transport_error(await drive("noisy_death"))["data"]["details"]["stderr"]

    assert told.endswith("noise and that was it")
    assert len(told) <= 4096


@pytest.mark.requirement("rep:poll:drained")
@pytest.mark.parametrize("once_more", range(5))
async def test_a_last_word_counts_although_the_runtime_is_gone(once_more: int) -> None:
    ended = await drive("leaves_early")

    assert (ended.status, len(ended.events)) == ("completed", 1000)


@pytest.mark.requirement("rep:settled:eof-at-once")
async def test_a_closed_output_is_noticed_although_the_runtime_lives() -> None:
    error = get_transport_error(await drive("closes_stdout", timeout_s=1e6))

    assert error["message"] == "the runtime closed its output but still runs"
    assert error["data"]["details"]["exit_code"] is None


async def test_a_closed_input_is_noticed_although_the_runtime_lives() -> None:
    error = get_transport_error(await drive("closes_stdin", timeout_s=1e6))

    assert error["message"] == "the runtime closed its input but still runs"


@pytest.mark.requirement("rep:settled:eof-at-once", "rep:lifecycle:no-leftovers")
async def test_a_child_that_keeps_the_pipes_open_hides_no_end_and_goes_too(tmp_path: Path) -> None:
    child = tmp_path / "child"

    error = get_transport_error(await drive("leaves_a_child", timeout_s=1e6, env={"CHILD": str(child)}))

    assert error["message"] == "the runtime ended with exit code 7"
    assert not is_alive(int(child.read_text()))


async def test_commands_of_a_runtime_that_was_killed_are_gone_too(tmp_path: Path) -> None:
    child = tmp_path / "child"

    error = get_transport_error(await drive("leaves_a_command", timeout_s=1e6, env={"CHILD": str(child)}))

    assert error["message"] == "the runtime ended with exit code 137"
    assert not is_alive(int(child.read_text()))


async def test_one_runtime_of_many_under_a_mark_takes_its_commands_along_and_no_others(tmp_path: Path) -> None:
    child, asked, cancel = tmp_path / "child", tmp_path / "asked", asyncio.Event()
    together = f"run-{tmp_path.name}"
    other = make_order("obeys_cancel", process_mark=together, env={"NOTES": str(asked)})
    driving = asyncio.create_task(driver.drive_run(other, cancel=cancel))
    await wait_until_asked(asked, "Runtime.Poll")

    killed = await driver.drive_run(
        make_order("leaves_a_command", process_mark=together, timeout_s=1e6, env={"CHILD": str(child)})
    )

    assert get_transport_error(killed)["message"] == "the runtime ended with exit code 137"
    assert not is_alive(int(child.read_text()))
    cancel.set()
    ended = await driving
    assert ended.error is not None
    assert ended.error["data"]["details"]["error"]["message"] == "cancelled", "the other one ran until it was cancelled"


@pytest.mark.requirement("rep:contract:engine-timeout", "rep:timeouts:engine")
@pytest.mark.parametrize("runtime", ["never_answers", "never_reads", "ignores_cancel", "ignores_sigterm", "never_answers_start"])
async def test_a_run_that_takes_too_long_is_ended_with_exit_code_4(runtime: str, tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    error = get_transport_error(await drive(runtime, timeout_s=0.7, env={"NOTES": str(asked)}))

    assert error["data"]["cause"] == "Timeout"
    assert error["message"].startswith("the run took longer than the engine timeout of 0.7 s and was ended; hint: ")
    assert "Runtime.Cancel" not in [request["method"] for request in read_notes(asked)]


@pytest.mark.requirement("rep:transport:large")
async def test_a_flow_larger_than_a_pipe_that_nobody_reads_hangs_nobody() -> None:
    error = get_transport_error(await drive("never_reads_the_run", inputs={"text": "x" * 1_000_000}, timeout_s=1))

    assert error["data"]["cause"] == "Timeout"


@pytest.mark.requirement("rep:transport:large")
async def test_a_flow_larger_than_a_pipe_arrives() -> None:
    assert (await drive("good", inputs={"text": "x" * 5_000_000})).status == "completed"


async def test_a_runtime_that_is_slow_to_start_is_waited_for() -> None:
    assert (await drive("slow_start")).status == "completed"


@pytest.mark.requirement("rep:lifecycle:lingering", "rep:lifecycle:no-leftovers")
async def test_a_runtime_that_does_not_go_after_its_run_is_ended() -> None:
    assert (await drive("lingers")).exit_code is errors.RepExitCode.OK


@pytest.mark.requirement("rep:exits:table")
async def test_a_runtime_that_lied_about_its_kinds_ends_with_exit_code_3() -> None:
    ended = await drive("lies", required=["agent.run"])

    assert ended.exit_code is errors.RepExitCode.VALIDATION
    assert ended.error is not None
    assert (ended.error["code"], ended.error["data"]["step_id"]) == (1002, "one")


@pytest.mark.requirement("rep:poll:bounded")
async def test_of_a_flood_of_events_all_are_handed_on_and_the_ends_are_kept() -> None:
    heard = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal heard
        heard += 1

    ended = await drive("floods", on_event=count, env={"POLLS": "12"})

    assert heard == 120_000
    assert (len(ended.events), ended.events_left_out) == (100_000, 20_000)
    assert ended.make_report()["events_left_out"] == 20_000
    assert [ended.events[place]["message"] for place in (0, 49_999, 50_000, -1)] == ["0/0", "4/9999", "7/0", "11/9999"]


def cancel_after(asked: Path, cancel: asyncio.Event, method: str) -> "asyncio.Task[None]":
    """Cancels once the runtime was asked that."""

    async def watch() -> None:
        await wait_until_asked(asked, method)
        cancel.set()

    return asyncio.create_task(watch())


@pytest.mark.requirement("rep:cancel:hanging", "rep:cancel:once")
async def test_a_runtime_that_hangs_in_a_poll_is_sent_a_cancel_once_and_may_still_end(tmp_path: Path) -> None:
    asked, cancel = tmp_path / "asked", asyncio.Event()
    watching = cancel_after(asked, cancel, "Runtime.Poll")

    ended = await drive(
        "hangs_in_poll", cancel=cancel, cancel_grace_s=30, timeout_s=1e6, env={"NOTES": str(asked), "AFTER_CANCEL": "ends"}
    )

    await watching
    assert get_transport_error(ended)["message"] == "the run was cancelled"
    assert [event["message"] for event in ended.events] == ["the last one"]
    methods = [request["method"] for request in read_notes(asked)]
    assert methods[2:] == ["Runtime.Poll", "Runtime.Cancel", "Runtime.Poll"]
    assert [request["id"] for request in read_notes(asked)] == [1, 2, 3, 4, 5]


@pytest.mark.requirement("rep:cancel:hanging", "rep:lifecycle:no-leftovers")
async def test_a_runtime_that_goes_on_hanging_after_the_cancel_is_ended(tmp_path: Path) -> None:
    asked, cancel = tmp_path / "asked", asyncio.Event()
    watching = cancel_after(asked, cancel, "Runtime.Poll")

    ended = await drive("hangs_in_poll", cancel=cancel, cancel_grace_s=2, env={"NOTES": str(asked), "AFTER_CANCEL": "hangs"})

    await watching
    assert get_transport_error(ended)["message"] == "the run was cancelled; the runtime did not stop within 2 s and was ended"
    assert [request["method"] for request in read_notes(asked)][2:] == ["Runtime.Poll", "Runtime.Cancel"]


@pytest.mark.requirement("rep:events:required")
@pytest.mark.parametrize(
    ("event", "absent"),
    [
        ({"type": "log", "message": "x"}, "`timestamp`"),
        ({"timestamp": "2026-01-01T00:00:00Z"}, "`type`"),
        ({}, "`type` and `timestamp`"),
        ({"type": ["log"], "timestamp": 1767225600}, "`type` and `timestamp`"),
        ({"type": "", "timestamp": ""}, "`type` and `timestamp`"),
    ],
)
async def test_an_event_without_type_or_timestamp_ends_the_run(event: dict[str, Any], absent: str) -> None:
    result = {"status": "completed", "events": [event], "summary": {"completed_steps": 1, "failed_steps": 0}}
    error = get_transport_error(await drive("polls_say", env={"RESULT": json.dumps(result)}))

    assert error["message"] == f"the runtime reported an event without {absent}"


@pytest.mark.requirement("rep:cancel:once", "rep:settled:cancelled", "rep:exits:cancelled")
async def test_a_cancelled_run_is_told_so_once_and_its_own_end_is_the_outcome(tmp_path: Path) -> None:
    asked, cancel = tmp_path / "asked", asyncio.Event()
    watching = cancel_after(asked, cancel, "Runtime.Poll")

    ended = await drive("obeys_cancel", cancel=cancel, env={"NOTES": str(asked)})

    await watching
    assert ended.error is not None
    assert (ended.status, ended.exit_code) == ("failed", errors.RepExitCode.RUNTIME_INTERNAL)
    data = {"step_id": None, "attempt": 0, "retriable": False}
    reported = {"code": 2001, "message": "cancelled", "data": {**data, "details": {}, "cause": "Cancelled"}}
    details = {"error": reported}
    assert ended.error == {
        "code": 3001,
        "message": "the run was cancelled",
        "data": {**data, "details": details, "cause": "Cancelled"},
    }
    assert [event["message"] for event in ended.events] == ["the last one"]
    assert [request["method"] for request in read_notes(asked)].count("Runtime.Cancel") == 1


@pytest.mark.requirement("rep:lifecycle:no-leftovers", "rep:settled:cancelled")
@pytest.mark.parametrize(
    ("runtime", "asked_last", "cancels"),
    [
        ("ignores_cancel", "Runtime.Poll", 1),
        ("ignores_sigterm", "Runtime.Poll", 1),
        ("never_answers_start", "Runtime.StartRun", 1),
    ],
)
async def test_a_runtime_that_does_not_mind_a_cancel_is_ended(
    runtime: str, asked_last: str, cancels: int, tmp_path: Path
) -> None:
    asked, cancel = tmp_path / "asked", asyncio.Event()
    watching = cancel_after(asked, cancel, asked_last)

    ended = await drive(runtime, cancel=cancel, cancel_grace_s=0.3, env={"NOTES": str(asked)})

    await watching
    error = get_transport_error(ended)
    assert error["data"]["cause"] == "Cancelled"
    assert error["message"] == "the run was cancelled; the runtime did not stop within 0.3 s and was ended"
    assert [request["method"] for request in read_notes(asked)].count("Runtime.Cancel") == cancels


@pytest.mark.requirement("rep:cancel:before-the-run")
async def test_a_cancel_before_the_run_began_ends_at_once(tmp_path: Path) -> None:
    asked, cancel = tmp_path / "asked", asyncio.Event()
    watching = cancel_after(asked, cancel, "Runtime.Capabilities")

    ended = await drive("never_answers", cancel=cancel, cancel_grace_s=1e6, timeout_s=1e6, env={"NOTES": str(asked)})

    await watching
    assert get_transport_error(ended)["message"] == "the run was cancelled before it began"


async def test_cancelling_the_task_cancels_the_run_and_stays_a_cancellation(tmp_path: Path) -> None:
    asked, reached = tmp_path / "asked", asyncio.Event()
    wanted = make_order("obeys_cancel", env={"NOTES": str(asked)})
    watching = cancel_after(asked, reached, "Runtime.Poll")
    driving = asyncio.create_task(drive_order(wanted))

    await reached.wait()
    driving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await driving
    await watching
    assert [request["method"] for request in read_notes(asked)].count("Runtime.Cancel") == 1


@pytest.mark.parametrize("first", ["the event", "the task"])
async def test_whoever_cancels_twice_does_not_wait_for_the_runtime(first: str, tmp_path: Path) -> None:
    asked, cancel = tmp_path / "asked", asyncio.Event()
    wanted = make_order("ignores_cancel", cancel_grace_s=1e6, timeout_s=1e6, env={"NOTES": str(asked)})
    driving = asyncio.create_task(drive_order(wanted, cancel=cancel))
    await wait_until_asked(asked, "Runtime.Poll")
    if first == "the event":
        cancel.set()
    else:
        driving.cancel()
    await wait_until_asked(asked, "Runtime.Cancel")

    driving.cancel()

    assert await is_cancelled(driving)


@pytest.mark.requirement("rep:settled:cancelled")
def test_ctrl_c_is_a_cancel(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    os.mkfifo(asked)
    program = f"""
import asyncio, json, sys
from switchtower.cli.flows import flow_run
from switchtower.protocols.rep import driver

async def main():
    order = driver.RuntimeRunOrder(argv=[sys.executable, {str(RUNTIMES / "obeys_cancel.py")!r}], cwd="/", ir={{}}, required=[],
                         run_id="run-of-ctrl-c", trace_id="t")
    with flow_run.cancel_on_interrupt() as cancel:
        ended = await driver.drive_run(order, cancel=cancel)
    print(json.dumps(ended.make_report()))
    return ended.exit_code

sys.exit(asyncio.run(main()))
"""
    environment = {**os.environ, "NOTES": str(asked)}
    requests = os.open(asked, os.O_RDWR)  # to write too, so that it has no end while the runtime is between two requests
    try:
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as process:
            while b"Runtime.Poll" not in os.read(requests, 4096):
                pass
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            ended = json.loads(process.stdout.read())
    finally:
        os.close(requests)
    assert process.returncode == 4
    assert ended["summary"]["error"]["data"]["cause"] == "Cancelled"
    assert find_run_processes("run-of-ctrl-c") == []


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        ("good", None),
        ("half_a_line", "the runtime ended with exit code 3"),
        ("exits_at_once", "the runtime ended with exit code 0"),
    ],
)
async def test_ends_are_noticed_without_pidfds_too(runtime: str, message: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, "there are none")

    monkeypatch.setattr(os, "pidfd_open", refuse)

    ended = await drive(runtime, timeout_s=1e6)

    assert (ended.error or {}).get("message") == message


def test_all_this_holds_on_uvloop_too() -> None:
    async def several() -> list[str]:
        ended = [await drive(runtime) for runtime in ("good", "half_a_line", "noisy", "lingers")]
        return [one.status for one in ended]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(several()) == ["completed", "failed", "completed", "completed"]
