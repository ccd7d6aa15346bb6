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
from tests.cli.conftest import Tower, line_with, processes_with
from tests.contract_proc.driving import IR, PATIENCE, RUNTIMES
from tests.engines.flow.runtime.stage import document, edge, node

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


def write(tower: Tower, name: str, content: Any) -> str:
    (tower.folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return name


def session_of(text: str) -> str:
    return next(word.strip(";`") for word in text.split() if word.startswith("sess_"))


def state_of(tower: Tower, session_id: str) -> str:
    listed = tower("sessions", "--limit", "100", "--json").json
    return next(str(session["state"]) for session in listed if session["sessionId"] == session_id)


def sessions(tower: Tower) -> list[str]:
    return [session["sessionId"] for session in tower("sessions", "--limit", "100", "--json").json]


@pytest.fixture
def served(shared: Tower) -> Tower:
    """With a daemon that runs already."""
    assert shared("sessions").code == 0
    assert Path(shared.endpoints["socket"]).exists()
    return shared


def without_times(told: dict[str, Any]) -> dict[str, Any]:
    events = [
        {name: value for name, value in event.items() if name not in ("timestamp", "duration_ms")} for event in told["events"]
    ]
    return {**told, "events": events}


@pytest.mark.requirement("rep:tower:command")
def test_a_flow_becomes_a_session_and_prints_its_outputs(served: Tower) -> None:
    ended = served("flow", "run", write(served, "greet.yaml", YAML), "--inputs", '{"who": "Ann"}')

    assert (ended.code, ended.stdout) == (0, b'{\n  "greeted": "Ann"\n}\n')
    lines = ended.stderr.splitlines()
    session_id = session_of(lines[0])
    assert f"`tower attach {session_id}`" in lines[0]
    assert "say: started" in lines
    assert any("[info] Ann" in line for line in lines)
    assert any(line.startswith("say: succeeded") for line in lines)
    assert lines[-1] == "greet: completed, 3 steps"
    assert session_id in sessions(served)


@pytest.mark.requirement("rep:tower:same-object")
def test_json_is_what_a_local_run_prints(served: Tower) -> None:
    write(served, "greet.yaml", YAML.replace("$input.who}}", '"one\\ntwo"}}'))
    write(served, "fails.json", {**IR, **document([node("no", "file.read", path="nowhere")])})

    for name, code in (("greet.yaml", 0), ("fails.json", 1)):
        attended = served("flow", "run", name, "--json")
        local = served("flow", "run", name, "--json", "--local")

        assert (attended.code, local.code, attended.stdout.count(b"\n")) == (code, code, 1)
        assert list(attended.json) == list(local.json) == ["flow", "status", "summary", "events"]
        assert without_times(attended.json) == without_times(local.json)


@pytest.mark.requirement("rep:tower:same-object")
def test_a_foreign_runtime_s_own_events_and_times_are_printed_as_in_a_local_run(served: Tower) -> None:
    arguments = ("flow", "run", write(served, "greet.json", IR), "--json", "--executor-path", str(RUNTIMES / "good.py"))
    attended, local = served(*arguments).json, served(*arguments, "--local").json

    for told in (attended, local):
        ids = [told["summary"]["outputs"].pop(f"TRACE_MIND_{name}_ID") for name in ("RUN", "TRACE")]
        assert [str(UUID(one)) for one in ids] == ids
    assert attended == local
    assert [event["type"] for event in attended["events"]] == ["step", "novel", "step"]
    assert {event["timestamp"] for event in attended["events"]} == {"2026-01-01T00:00:00Z"}


def test_local_makes_no_session(served: Tower) -> None:
    before = sessions(served)
    ended = served("flow", "run", write(served, "greet.yaml", YAML), "--local")

    assert (ended.code, ended.stdout) == (0, b'{\n  "greeted": "you"\n}\n')
    assert sessions(served) == before


@pytest.mark.requirement("rep:tower:exits")
@pytest.mark.parametrize(
    ("flow", "more", "code", "error"),
    [
        (IR, [], 0, None),
        (document([node("no", "file.read", path="nowhere")]), [], 1, 2001),
        (document([node("a", "log")], [edge("a", "nobody")]), [], 2, 1003),
        (document([node("a", "log")], who="string"), ["--inputs", '{"who": 1}'], 2, None),
        (document([node("one", "moon.landing")]), ["--executor-path", str(RUNTIMES / "good.py")], 3, 1002),
        (IR, ["--executor-path", str(RUNTIMES / "dies_mid_run.py")], 4, 3001),
        (IR, ["--executor-path", str(RUNTIMES / "obeys_cancel.py"), "--timeout", "0.5"], 4, 3001),
        (document([node("ask", "approval", timeout_ms=200)]), [], 1, 2001),
    ],
    ids=["completed", "step", "flow", "inputs", "kind", "died", "timeout", "nobody decided"],
)
def test_the_exit_code_is_rep_s(served: Tower, flow: dict[str, Any], more: list[str], code: int, error: int | None) -> None:
    ended = served("flow", "run", write(served, "flow.json", flow), "--json", *more)

    assert ended.code == code, ended.stderr
    assert ended.json["status"] == ("completed" if code == 0 else "failed")
    if error is not None:
        assert ended.json["summary"]["error"]["code"] == error
    assert "Traceback" not in ended.stderr


def test_shell_steps_need_to_be_allowed(served: Tower) -> None:
    write(served, "shell.json", document([node("sh", "shell", command="echo made > made")]))

    assert served("flow", "run", "shell.json").code != 0
    assert not (served.folder / "made").exists()
    assert served("flow", "run", "shell.json", "--allow-shell").code == 0
    assert (served.folder / "made").read_text() == "made\n"


@pytest.mark.parametrize("text", [YAML, json.dumps(IR)], ids=["yaml", "json"])
def test_a_dash_reads_the_flow_from_stdin(served: Tower, text: str) -> None:
    ended = served("flow", "run", "-", "--json", stdin=text.encode())

    assert (ended.code, ended.json["flow"], ended.json["status"]) == (0, "greet", "completed")


@pytest.mark.parametrize("text", [b"", b"\xff\x00", b"name: x\nsteps: 3\n", b"{"], ids=["nothing", "rubbish", "yaml", "json"])
def test_rubbish_from_stdin_is_refused(served: Tower, text: bytes) -> None:
    ended = served("flow", "run", "-", stdin=text)

    assert (ended.code, ended.stdout) == (2, b"")
    assert ended.stderr.startswith("tower: ")
    assert "Traceback" not in ended.stderr


@pytest.mark.requirement("rep:tower:detach")
def test_who_detaches_gets_the_session_and_the_flow_goes_on(served: Tower) -> None:
    write(served, "ask.yaml", ASKS)
    plain = served("flow", "run", "ask.yaml", "--detach")
    as_json = served("flow", "run", "ask.yaml", "--detach", "--json")

    session_id = plain.stdout.decode().strip()
    assert (plain.code, plain.stdout) == (0, f"{session_id}\n".encode())
    assert session_id.startswith("sess_")
    assert (as_json.code, list(as_json.json)) == (0, ["sessionId"])
    _approved(served, session_id, "--comment", "fine")
    assert served("cancel", as_json.json["sessionId"]).code == 0
    looks = 0
    while state_of(served, session_id) in ("running", "awaiting_approval") and looks < MOST_LOOKS:
        looks += 1
    assert (state_of(served, session_id), (served.folder / "made.txt").read_text()) == ("completed", "done")


def _approved(tower: Tower, session_id: str, *more: str) -> None:
    """The question may be about to come."""
    for _ in range(MOST_LOOKS):
        ended = tower("approve", session_id, *more)
        if ended.code == 0:
            return
        assert "Traceback" not in ended.stderr
    raise AssertionError(ended.stderr)


@pytest.mark.requirement("rep:tower:waits")
def test_a_flow_that_waits_says_so_and_goes_on_when_somebody_approves(served: Tower) -> None:
    process = served.start("flow", "run", write(served, "ask.yaml", ASKS))
    session_id = session_of(line_with(process, "session "))
    hint = line_with(process, "waits for a decision")
    assert f"`tower approve {session_id}`" in hint
    assert not (served.folder / "made.txt").exists()
    _approved(served, session_id)
    stdout, stderr = process.communicate(timeout=PATIENCE)

    assert (process.returncode, json.loads(stdout)) == (0, {"by": "owner"})
    assert b"ask: completed, 4 steps" in stderr
    assert (served.folder / "made.txt").read_text() == "done"


def test_a_no_ends_with_1(served: Tower) -> None:
    process = served.start("flow", "run", write(served, "ask.yaml", ASKS), "--json")
    session_id = session_of(line_with(process, "session "))
    line_with(process, "waits for a decision")
    assert served("deny", session_id, "--comment", "not today").code == 0
    stdout, _ = process.communicate(timeout=PATIENCE)

    assert process.returncode == 1
    assert json.loads(stdout)["summary"]["error"]["message"] == "denied by owner: not today"
    assert not (served.folder / "made.txt").exists()


@pytest.mark.requirement("rep:tower:interrupt", "rep:events:ends", "rep:exits:cancelled")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_cancels_the_session(served: Tower, number: signal.Signals) -> None:
    process = served.start("flow", "run", write(served, "nap.json", document([node("nap", "sleep", seconds="3600")])), "--json")
    session_id = session_of(line_with(process, "session "))
    line_with(process, "nap: started")
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=PATIENCE)

    told = json.loads(stdout)
    assert (process.returncode, told["summary"]["error"]["code"]) == (4, 3001)
    assert told["summary"]["error"]["data"]["cause"] == "Cancelled"
    assert [(event["step_id"], event["state"]) for event in told["events"]] == [("nap", "started"), ("nap", "failed")]
    assert (told["summary"]["completed_steps"], told["summary"]["failed_steps"]) == (0, 1)
    assert b"Traceback" not in stderr
    assert state_of(served, session_id) == "cancelled"


def test_a_flow_that_waits_starts_a_daemon_and_others_do_not(tower: Tower) -> None:
    write(tower, "greet.yaml", YAML)
    assert tower("flow", "run", "greet.yaml").code == 0
    assert not (tower.home / "run/endpoints.json").exists()
    refused = tower("flow", "run", "greet.yaml", "--detach")
    assert refused.code == 2
    assert "hint: `tower serve`" in refused.stderr

    detached = tower("flow", "run", write(tower, "ask.yaml", ASKS), "--detach")
    assert detached.code == 0
    assert (tower.home / "run/endpoints.json").exists()


def test_a_socket_that_somebody_left_behind_is_no_daemon(tower: Tower) -> None:
    detached = tower("flow", "run", write(tower, "ask.yaml", ASKS), "--detach")
    assert detached.code == 0
    os.kill(tower.endpoints["pid"], signal.SIGKILL)
    ended = tower("flow", "run", write(tower, "greet.yaml", YAML))

    assert (ended.code, ended.stdout) == (0, b'{\n  "greeted": "you"\n}\n')


def test_a_daemon_that_dies_and_comes_back_is_waited_for(tower: Tower) -> None:
    process = tower.start("flow", "run", write(tower, "ask.yaml", ASKS))
    session_id = session_of(line_with(process, "session "))
    line_with(process, "waits for a decision")
    os.kill(tower.endpoints["pid"], signal.SIGKILL)
    line_with(process, "connection lost")
    _approved(tower, session_id)  # which starts the next one
    stdout, _ = process.communicate(timeout=PATIENCE)

    assert (process.returncode, json.loads(stdout)) == (0, {"by": "owner"})


def test_what_an_agent_starts_is_refused_a_flow_and_ends_with_4(alone: Tower) -> None:
    command = f"{shlex.quote(sys.executable)} -P -m switchtower flow run greet.json --json"
    write(alone, "greet.json", IR)
    line = f"run: TOWER_HOME={alone.home} {command} > out.json; echo $? > code"
    assert alone("run", "--headless", "--provider", "demo", "--policy", "yolo", line).code == 0

    assert (alone.folder / "code").read_text() == "4\n"
    error = json.loads((alone.folder / "out.json").read_text())["summary"]["error"]
    assert "a process of a run can start a session with an agent" in error["message"]


# A runtime that somebody else drives


class Driven:
    """`tower flow runtime`, spoken to line by line."""

    def __init__(self, tower: Tower, flow: dict[str, Any]) -> None:
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

    def to_the_end(self) -> dict[str, Any]:
        while (told := self.poll())["status"] in ("pending", "running"):
            pass
        return told

    def close(self) -> None:
        self.process.communicate(timeout=PATIENCE)


def waiting_session(tower: Tower) -> str:
    """The session that waits, once there is one."""
    for _ in range(MOST_LOOKS):
        waiting = [row["sessionId"] for row in tower("sessions", "--json").json if row["state"] == "awaiting_approval"]
        if waiting:
            return str(waiting[0])
    raise AssertionError("nobody waits")


@pytest.fixture
def alone(tower: Tower) -> Tower:
    """A daemon of its own, so that nobody else's questions are there."""
    assert tower("sessions").code == 0
    return tower


@pytest.mark.requirement("rep:tower:standalone")
def test_a_runtime_driven_by_others_does_an_approval_through_the_daemon(alone: Tower) -> None:
    asks = node("go", "approval", title="Deploy?", message="$step.one.path")
    driven = Driven(alone, {**IR, **document([node("one", "file.write", path="x", content="y"), asks], [edge("one", "go")])})
    try:
        session_id = waiting_session(alone)
        shown = alone("inbox").stdout.decode()
        assert "Deploy?" in shown
        assert driven.poll()["status"] == "running"
        _approved(alone, session_id, "--comment", "fine")
        told = driven.to_the_end()
    finally:
        driven.close()

    assert told["status"] == "completed", told
    (ended,) = [event for event in driven.events if event.get("step_id") == "go" and event.get("state") == "succeeded"]
    assert ended["outputs"] == {"approved": True, "comment": "fine", "by": "owner", "via": "cli"}


def test_a_runtime_driven_by_others_has_an_agent_do_a_step(alone: Tower) -> None:
    works = node("do", "agent.run", prompt="say: $input.x is text", provider="demo", acceptance=["true"])
    driven = Driven(alone, {**IR, **document([works, node("out", "dsl.emit", said="$step.do.text")], [edge("do", "out")])})
    try:
        told = driven.to_the_end()
    finally:
        driven.close()

    assert told["status"] == "completed", told
    assert "$input.x is text" in told["summary"]["outputs"]["said"]


def test_a_no_fails_the_step_of_a_runtime_driven_by_others(alone: Tower) -> None:
    driven = Driven(alone, {**IR, **document([node("go", "approval")])})
    try:
        assert alone("deny", waiting_session(alone), "--comment", "no").code == 0
        told = driven.to_the_end()
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


def test_to_cancel_the_runtime_takes_its_question_back(alone: Tower) -> None:
    driven = Driven(alone, {**IR, **document([node("go", "approval")])})
    try:
        session_id = waiting_session(alone)
        assert driven.ask("Runtime.Cancel", run_id=driven.run_id) == {"ok": True}
        told = driven.to_the_end()
    finally:
        driven.close()

    assert (told["status"], told["summary"]["error"]["data"]["cause"]) == ("failed", "Cancelled")
    assert state_of(alone, session_id) == "cancelled"
    assert processes_with("tower-step-") == []


def test_without_a_daemon_the_step_fails_and_says_how_to_get_one(tower: Tower) -> None:
    driven = Driven(tower, {**IR, **document([node("go", "approval")])})
    try:
        told = driven.to_the_end()
    finally:
        driven.close()

    assert told["summary"]["error"]["message"] == "no daemon runs that could do it; hint: start one with `tower serve`"
    assert not (tower.home / "run").exists()


def test_outputs_of_megabytes_come_through(served: Tower) -> None:
    (served.folder / "long.txt").write_text("x" * 1_000_000)
    read = node("read", "file.read", path="long.txt")
    emit = node("emit", "dsl.emit", **dict.fromkeys("abc", "$step.read.content"))
    more = node("more", "dsl.emit", **dict.fromkeys("def", "$step.read.content"))
    flow = document([read, emit, more], [edge("read", "emit"), edge("emit", "more")])
    ended = served("flow", "run", write(served, "long.json", flow), "--json")

    assert ended.code == 0, ended.stderr
    assert {name: len(text) for name, text in ended.json["summary"]["outputs"].items()} == dict.fromkeys("abcdef", 1_000_000)
    assert [event.get("outputs_left_out") for event in ended.json["events"]] == [None, None, None, True, None, True]


def test_a_flow_that_is_longer_than_a_frame_is_refused_with_a_way_out(served: Tower) -> None:
    name = write(served, "big.json", document([node("big", "log", message="x" * 1_100_000)]))
    ended = served("flow", "run", name)

    assert (ended.code, ended.stdout) == (4, b"")
    assert "hint: run it with `--local`" in ended.stderr
    assert served("flow", "run", name, "--local").code == 0


def test_the_folder_of_a_flow_is_where_it_was_started(served: Tower, tmp_path: Path) -> None:
    write(served, "where.json", document([node("w", "file.write", path="here.txt", content="x")]))

    assert served("flow", "run", "where.json").code == 0
    assert (tmp_path / "here.txt").read_text() == "x"
