"""`tower flow run` where a daemon runs: bytes of stdout, stderr and exit codes, and what the session of the flow becomes."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.cli.conftest import TowerCommand, find_processes_with, read_line_with
from tests.contract_proc.driving import DRIVER_TIMEOUT, IR, RUNTIMES
from tests.engines.flow.runtime.stage import make_document, make_edge, make_node

MOST_LOOKS = 200
"""At what another process is about to do; each takes a fifth of a second."""
YAML = """\
name: greet
inputs:
  who: {type: string, default: you}
steps:
  - {id: say, kind: log, with: {message: $input.who}}
outputs: {greeted: $input.who}
"""
ASKS = """\
name: ask
steps:
  - {id: go, kind: approval, with: {title: "Go on?", message: "Really?"}}
  - {id: made, kind: file.write, with: {path: made.txt, content: done}}
outputs: {by: $step.go.by}
"""


def write(tower: TowerCommand, name: str, content: Any) -> str:
    (tower.folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return name


def parse_session_id(text: str) -> str:
    return next(word.strip(";`") for word in text.split() if word.startswith("sess_"))


def get_state(tower: TowerCommand, session_id: str) -> str:
    listed = tower("sessions", "--limit", "100", "--json").json
    return next(str(session["state"]) for session in listed if session["sessionId"] == session_id)


def list_sessions(tower: TowerCommand) -> list[str]:
    return [session["sessionId"] for session in tower("sessions", "--limit", "100", "--json").json]


@pytest.fixture
def running_command(shared_command: TowerCommand) -> TowerCommand:
    """With a daemon that runs already."""
    assert shared_command("sessions").code == 0
    assert Path(shared_command.endpoints["socket"]).exists()
    return shared_command


def drop_times(told: dict[str, Any]) -> dict[str, Any]:
    events = [
        {name: value for name, value in event.items() if name not in ("timestamp", "duration_ms")} for event in told["events"]
    ]
    return {**told, "events": events}


@pytest.mark.requirement("rep:tower:command")
def test_a_flow_becomes_a_session_and_prints_its_outputs(running_command: TowerCommand) -> None:
    ended = running_command("flow", "run", write(running_command, "greet.yaml", YAML), "--inputs", '{"who": "Ann"}')

    assert (ended.code, ended.stdout) == (0, b'{\n  "greeted": "Ann"\n}\n')
    lines = ended.stderr.splitlines()
    session_id = parse_session_id(lines[0])
    assert f"`tower attach {session_id}`" in lines[0]
    assert "say: started" in lines
    assert any("[info] Ann" in line for line in lines)
    assert any(line.startswith("say: succeeded") for line in lines)
    assert lines[-1] == "greet: completed, 3 steps"
    assert session_id in list_sessions(running_command)


@pytest.mark.requirement("rep:tower:same-object")
def test_json_is_what_a_local_run_prints(running_command: TowerCommand) -> None:
    write(running_command, "greet.yaml", YAML.replace("$input.who}}", '"one\\ntwo"}}'))
    write(running_command, "fails.json", {**IR, **make_document([make_node("no", "file.read", path="nowhere")])})

    for name, code in (("greet.yaml", 0), ("fails.json", 1)):
        attended = running_command("flow", "run", name, "--json")
        local = running_command("flow", "run", name, "--json", "--local")

        assert (attended.code, local.code, attended.stdout.count(b"\n")) == (code, code, 1)
        assert list(attended.json) == list(local.json) == ["flow", "status", "summary", "events"]
        assert drop_times(attended.json) == drop_times(local.json)


@pytest.mark.requirement("rep:tower:same-object")
def test_a_foreign_runtime_s_own_events_and_times_are_printed_as_in_a_local_run(running_command: TowerCommand) -> None:
    arguments = ("flow", "run", write(running_command, "greet.json", IR), "--json", "--executor-path", str(RUNTIMES / "good.py"))
    attended, local = running_command(*arguments).json, running_command(*arguments, "--local").json

    for told in (attended, local):
        ids = [told["summary"]["outputs"].pop(f"TRACE_MIND_{name}_ID") for name in ("RUN", "TRACE")]
        assert [str(UUID(one)) for one in ids] == ids
    assert attended == local
    assert [event["type"] for event in attended["events"]] == ["step", "novel", "step"]
    assert {event["timestamp"] for event in attended["events"]} == {"2026-01-01T00:00:00Z"}


def test_local_makes_no_session(running_command: TowerCommand) -> None:
    before = list_sessions(running_command)
    ended = running_command("flow", "run", write(running_command, "greet.yaml", YAML), "--local")

    assert (ended.code, ended.stdout) == (0, b'{\n  "greeted": "you"\n}\n')
    assert list_sessions(running_command) == before


@pytest.mark.requirement("rep:tower:exits")
@pytest.mark.parametrize(
    ("flow", "more", "code", "error"),
    [
        (IR, [], 0, None),
        (make_document([make_node("no", "file.read", path="nowhere")]), [], 1, 2001),
        (make_document([make_node("a", "log")], [make_edge("a", "nobody")]), [], 2, 1003),
        (make_document([make_node("a", "log")], who="string"), ["--inputs", '{"who": 1}'], 2, None),
        (make_document([make_node("one", "moon.landing")]), ["--executor-path", str(RUNTIMES / "good.py")], 3, 1002),
        (IR, ["--executor-path", str(RUNTIMES / "dies_mid_run.py")], 4, 3001),
        (IR, ["--executor-path", str(RUNTIMES / "obeys_cancel.py"), "--timeout", "0.5"], 4, 3001),
        (make_document([make_node("ask", "approval", timeout_ms=200)]), [], 1, 2001),
    ],
    ids=["completed", "step", "flow", "inputs", "kind", "died", "timeout", "nobody decided"],
)
def test_the_exit_code_is_rep_s(
    running_command: TowerCommand, flow: dict[str, Any], more: list[str], code: int, error: int | None
) -> None:
    ended = running_command("flow", "run", write(running_command, "flow.json", flow), "--json", *more)

    assert ended.code == code, ended.stderr
    assert ended.json["status"] == ("completed" if code == 0 else "failed")
    if error is not None:
        assert ended.json["summary"]["error"]["code"] == error
    assert "Traceback" not in ended.stderr


def test_shell_steps_need_to_be_allowed(running_command: TowerCommand) -> None:
    write(running_command, "shell.json", make_document([make_node("sh", "shell", command="echo made > made")]))

    assert running_command("flow", "run", "shell.json").code != 0
    assert not (running_command.folder / "made").exists()
    assert running_command("flow", "run", "shell.json", "--allow-shell").code == 0
    assert (running_command.folder / "made").read_text() == "made\n"


@pytest.mark.parametrize("text", [YAML, json.dumps(IR)], ids=["yaml", "json"])
def test_a_dash_reads_the_flow_from_stdin(running_command: TowerCommand, text: str) -> None:
    ended = running_command("flow", "run", "-", "--json", stdin=text.encode())

    assert (ended.code, ended.json["flow"], ended.json["status"]) == (0, "greet", "completed")


@pytest.mark.parametrize("text", [b"", b"\xff\x00", b"name: x\nsteps: 3\n", b"{"], ids=["nothing", "rubbish", "yaml", "json"])
def test_rubbish_from_stdin_is_refused(running_command: TowerCommand, text: bytes) -> None:
    ended = running_command("flow", "run", "-", stdin=text)

    assert (ended.code, ended.stdout) == (2, b"")
    assert ended.stderr.startswith("tower: ")
    assert "Traceback" not in ended.stderr


@pytest.mark.requirement("rep:tower:detach")
def test_who_detaches_gets_the_session_and_the_flow_goes_on(running_command: TowerCommand) -> None:
    write(running_command, "ask.yaml", ASKS)
    plain = running_command("flow", "run", "ask.yaml", "--detach")
    as_json = running_command("flow", "run", "ask.yaml", "--detach", "--json")

    session_id = plain.stdout.decode().strip()
    assert (plain.code, plain.stdout) == (0, f"{session_id}\n".encode())
    assert session_id.startswith("sess_")
    assert (as_json.code, list(as_json.json)) == (0, ["sessionId"])
    _approve(running_command, session_id, "--comment", "fine")
    assert running_command("cancel", as_json.json["sessionId"]).code == 0
    looks = 0
    while get_state(running_command, session_id) in ("running", "awaiting_approval") and looks < MOST_LOOKS:
        looks += 1
    assert (get_state(running_command, session_id), (running_command.folder / "made.txt").read_text()) == ("completed", "done")


def _approve(tower: TowerCommand, session_id: str, *more: str) -> None:
    """The question may be about to come."""
    for _ in range(MOST_LOOKS):
        ended = tower("approve", session_id, *more)
        if ended.code == 0:
            return
        assert "Traceback" not in ended.stderr
    raise AssertionError(ended.stderr)


@pytest.mark.requirement("rep:tower:waits")
def test_a_flow_that_waits_says_so_and_goes_on_when_somebody_approves(running_command: TowerCommand) -> None:
    process = running_command.start("flow", "run", write(running_command, "ask.yaml", ASKS))
    session_id = parse_session_id(read_line_with(process, "session "))
    hint = read_line_with(process, "waits for a decision")
    assert f"`tower approve {session_id}`" in hint
    assert not (running_command.folder / "made.txt").exists()
    _approve(running_command, session_id)
    stdout, stderr = process.communicate(timeout=DRIVER_TIMEOUT)

    assert (process.returncode, json.loads(stdout)) == (0, {"by": "owner"})
    assert b"ask: completed, 4 steps" in stderr
    assert (running_command.folder / "made.txt").read_text() == "done"


def test_a_no_ends_with_1(running_command: TowerCommand) -> None:
    process = running_command.start("flow", "run", write(running_command, "ask.yaml", ASKS), "--json")
    session_id = parse_session_id(read_line_with(process, "session "))
    read_line_with(process, "waits for a decision")
    assert running_command("deny", session_id, "--comment", "not today").code == 0
    stdout, _ = process.communicate(timeout=DRIVER_TIMEOUT)

    assert process.returncode == 1
    assert json.loads(stdout)["summary"]["error"]["message"] == "denied by owner: not today"
    assert not (running_command.folder / "made.txt").exists()


@pytest.mark.requirement("rep:tower:interrupt", "rep:events:ends", "rep:exits:cancelled")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_cancels_the_session(running_command: TowerCommand, number: signal.Signals) -> None:
    process = running_command.start(
        "flow", "run", write(running_command, "nap.json", make_document([make_node("nap", "sleep", seconds="3600")])), "--json"
    )
    session_id = parse_session_id(read_line_with(process, "session "))
    read_line_with(process, "nap: started")
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=DRIVER_TIMEOUT)

    told = json.loads(stdout)
    assert (process.returncode, told["summary"]["error"]["code"]) == (4, 3001)
    assert told["summary"]["error"]["data"]["cause"] == "Cancelled"
    assert [(event["step_id"], event["state"]) for event in told["events"]] == [("nap", "started"), ("nap", "failed")]
    assert (told["summary"]["completed_steps"], told["summary"]["failed_steps"]) == (0, 1)
    assert b"Traceback" not in stderr
    assert get_state(running_command, session_id) == "cancelled"


def test_a_flow_that_waits_starts_a_daemon_and_others_do_not(tower_command: TowerCommand) -> None:
    write(tower_command, "greet.yaml", YAML)
    assert tower_command("flow", "run", "greet.yaml").code == 0
    assert not (tower_command.home / "run/endpoints.json").exists()
    refused = tower_command("flow", "run", "greet.yaml", "--detach")
    assert refused.code == 2
    assert "hint: `tower serve`" in refused.stderr

    detached = tower_command("flow", "run", write(tower_command, "ask.yaml", ASKS), "--detach")
    assert detached.code == 0
    assert (tower_command.home / "run/endpoints.json").exists()


def test_a_socket_that_somebody_left_behind_is_no_daemon(tower_command: TowerCommand) -> None:
    detached = tower_command("flow", "run", write(tower_command, "ask.yaml", ASKS), "--detach")
    assert detached.code == 0
    os.kill(tower_command.endpoints["pid"], signal.SIGKILL)
    ended = tower_command("flow", "run", write(tower_command, "greet.yaml", YAML))

    assert (ended.code, ended.stdout) == (0, b'{\n  "greeted": "you"\n}\n')


def test_a_daemon_that_dies_and_comes_back_is_waited_for(tower_command: TowerCommand) -> None:
    process = tower_command.start("flow", "run", write(tower_command, "ask.yaml", ASKS))
    session_id = parse_session_id(read_line_with(process, "session "))
    read_line_with(process, "waits for a decision")
    os.kill(tower_command.endpoints["pid"], signal.SIGKILL)
    read_line_with(process, "connection lost")
    _approve(tower_command, session_id)  # which starts the next one
    stdout, _ = process.communicate(timeout=DRIVER_TIMEOUT)

    assert (process.returncode, json.loads(stdout)) == (0, {"by": "owner"})


def test_what_an_agent_starts_is_refused_a_flow_and_ends_with_4(dedicated_command: TowerCommand) -> None:
    command = f"{shlex.quote(sys.executable)} -P -m switchtower flow run greet.json --json"
    write(dedicated_command, "greet.json", IR)
    line = f"run: TOWER_HOME={dedicated_command.home} {command} > out.json; echo $? > code"
    assert dedicated_command("run", "--headless", "--provider", "demo", "--policy", "yolo", line).code == 0

    assert (dedicated_command.folder / "code").read_text() == "4\n"
    error = json.loads((dedicated_command.folder / "out.json").read_text())["summary"]["error"]
    assert "a process of a run can start a session with an agent" in error["message"]


# A runtime that somebody else drives


class DrivenFlow:
    """`tower flow runtime`, spoken to line by line."""

    def __init__(self, tower: TowerCommand, flow: dict[str, Any]) -> None:
        command = [sys.executable, "-P", "-m", "switchtower", "flow", "runtime"]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=tower.folder, env=tower.environment, **streams)
        self._asked = 0
        self.events: list[dict[str, Any]] = []
        self.run_id = self.ask("Runtime.StartRun", ir=flow, inputs={}, options={"run_id": "foreign-1"})["run_id"]

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._asked += 1
        request = {"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self._asked
        result: dict[str, Any] = answer["result"]
        return result

    def poll(self) -> dict[str, Any]:
        told = self.ask("Runtime.Poll", run_id=self.run_id)
        self.events += told["events"]
        return told

    def run_to_end(self) -> dict[str, Any]:
        while (told := self.poll())["status"] in ("pending", "running"):
            pass
        return told

    def close(self) -> None:
        self.process.communicate(timeout=DRIVER_TIMEOUT)


def wait_for_session(tower: TowerCommand) -> str:
    """The session that waits, once there is one."""
    for _ in range(MOST_LOOKS):
        waiting = [row["sessionId"] for row in tower("sessions", "--json").json if row["state"] == "awaiting_approval"]
        if waiting:
            return str(waiting[0])
    raise AssertionError("nobody waits")


@pytest.fixture
def dedicated_command(tower_command: TowerCommand) -> TowerCommand:
    """A daemon of its own, so that nobody else's questions are there."""
    assert tower_command("sessions").code == 0
    return tower_command


@pytest.mark.requirement("rep:tower:standalone")
def test_a_runtime_driven_by_others_does_an_approval_through_the_daemon(dedicated_command: TowerCommand) -> None:
    asks = make_node("go", "approval", title="Deploy?", message="$step.one.path")
    driven = DrivenFlow(
        dedicated_command,
        {**IR, **make_document([make_node("one", "file.write", path="x", content="y"), asks], [make_edge("one", "go")])},
    )
    try:
        session_id = wait_for_session(dedicated_command)
        shown = dedicated_command("inbox").stdout.decode()
        assert "Deploy?" in shown
        assert driven.poll()["status"] == "running"
        _approve(dedicated_command, session_id, "--comment", "fine")
        told = driven.run_to_end()
    finally:
        driven.close()

    assert told["status"] == "completed", told
    (ended,) = [event for event in driven.events if event.get("step_id") == "go" and event.get("state") == "succeeded"]
    assert ended["outputs"] == {"approved": True, "comment": "fine", "by": "owner", "via": "cli"}


def test_a_runtime_driven_by_others_has_an_agent_do_a_step(dedicated_command: TowerCommand) -> None:
    works = make_node("do", "agent.run", prompt="say: $input.x is text", provider="demo", acceptance=["true"])
    driven = DrivenFlow(
        dedicated_command,
        {**IR, **make_document([works, make_node("out", "dsl.emit", said="$step.do.text")], [make_edge("do", "out")])},
    )
    try:
        told = driven.run_to_end()
    finally:
        driven.close()

    assert told["status"] == "completed", told
    assert "$input.x is text" in told["summary"]["outputs"]["said"]


def test_a_no_fails_the_step_of_a_runtime_driven_by_others(dedicated_command: TowerCommand) -> None:
    driven = DrivenFlow(dedicated_command, {**IR, **make_document([make_node("go", "approval")])})
    try:
        assert dedicated_command("deny", wait_for_session(dedicated_command), "--comment", "no").code == 0
        told = driven.run_to_end()
    finally:
        driven.close()

    error = told["summary"]["error"]
    assert (told["status"], error["code"], error["message"], error["data"]["step_id"]) == (
        "failed",
        2001,
        "denied by owner: no",
        "go",
    )
    assert error["data"]["details"]["approved"] is False


def test_to_cancel_the_runtime_takes_its_question_back(dedicated_command: TowerCommand) -> None:
    driven = DrivenFlow(dedicated_command, {**IR, **make_document([make_node("go", "approval")])})
    try:
        session_id = wait_for_session(dedicated_command)
        assert driven.ask("Runtime.Cancel", run_id=driven.run_id) == {"ok": True}
        told = driven.run_to_end()
    finally:
        driven.close()

    assert (told["status"], told["summary"]["error"]["data"]["cause"]) == ("failed", "Cancelled")
    assert get_state(dedicated_command, session_id) == "cancelled"
    assert find_processes_with("tower-step-") == []


def test_without_a_daemon_the_step_fails_and_says_how_to_get_one(tower_command: TowerCommand) -> None:
    driven = DrivenFlow(tower_command, {**IR, **make_document([make_node("go", "approval")])})
    try:
        told = driven.run_to_end()
    finally:
        driven.close()

    assert told["summary"]["error"]["message"] == "no daemon runs that could do it; hint: start one with `tower serve`"
    assert not (tower_command.home / "run").exists()


def test_outputs_of_megabytes_come_through(running_command: TowerCommand) -> None:
    (running_command.folder / "long.txt").write_text("x" * 1_000_000)
    read = make_node("read", "file.read", path="long.txt")
    emit = make_node("emit", "dsl.emit", **dict.fromkeys("abc", "$step.read.content"))
    more = make_node("more", "dsl.emit", **dict.fromkeys("def", "$step.read.content"))
    flow = make_document([read, emit, more], [make_edge("read", "emit"), make_edge("emit", "more")])
    ended = running_command("flow", "run", write(running_command, "long.json", flow), "--json")

    assert ended.code == 0, ended.stderr
    assert {name: len(text) for name, text in ended.json["summary"]["outputs"].items()} == dict.fromkeys("abcdef", 1_000_000)
    assert [event.get("outputs_left_out") for event in ended.json["events"]] == [None, None, None, True, None, True]


def test_a_flow_that_is_longer_than_a_frame_is_refused_with_a_way_out(running_command: TowerCommand) -> None:
    name = write(running_command, "big.json", make_document([make_node("big", "log", message="x" * 1_100_000)]))
    ended = running_command("flow", "run", name)

    assert (ended.code, ended.stdout) == (4, b"")
    assert "hint: run it with `--local`" in ended.stderr
    assert running_command("flow", "run", name, "--local").code == 0


def test_the_folder_of_a_flow_is_where_it_was_started(running_command: TowerCommand, tmp_path: Path) -> None:
    write(running_command, "where.json", make_document([make_node("w", "file.write", path="here.txt", content="x")]))

    assert running_command("flow", "run", "where.json").code == 0
    assert (tmp_path / "here.txt").read_text() == "x"
