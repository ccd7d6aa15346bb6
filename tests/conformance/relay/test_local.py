"""The host's own HTTP on its owner's socket: routes, the events that it leaves, and the terminal as a stream."""

import asyncio
import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.relay.peers import TIMEOUT, CheckedApp, CheckedHttp


def start(local: CheckedHttp, cmd: str, cwd: Path, tool: str = "demo") -> str:
    return str(local.post("/runs", {"cmd": cmd, "tool": tool, "cwd": str(cwd)})["run_id"])


@pytest.fixture
async def waiting_run(owner_http: CheckedHttp, app: CheckedApp, repository: Path) -> str:
    """A run that waits, of which an app is told."""
    run_id = start(owner_http, "echo up; read x; echo got:$x:; exit 4", repository)
    await app.wait_for_output(run_id, "up")
    return run_id


async def list_call_frames(app: CheckedApp, run_id: str, tool: str) -> tuple[dict[str, Any], dict[str, Any]]:
    result = (await app.wait_for_frame("tool.result", run_id, tool=tool))["data"]
    call = (await app.wait_for_frame("tool.call", run_id, request_id=result["request_id"]))["data"]
    return call, result


@pytest.mark.requirement("relay:local:owner-only")
def test_the_socket_is_its_owners_alone(hub: ManagedDaemon) -> None:
    path = json.loads((hub.home / "run" / "endpoints.json").read_bytes())["hostd_socket"]
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0  # noqa: PTH116
    assert Path(path).is_socket()


@pytest.mark.requirement("relay:local:runs")
async def test_runs_are_started_and_listed(owner_http: CheckedHttp, app: CheckedApp, repository: Path) -> None:
    run_id = start(owner_http, "read x", repository, tool="codex")
    started = await app.wait_for_frame("run.started", run_id)
    assert started["data"] == {"tool": "codex", "cwd": str(repository), "command": "read x", "cols": 120, "rows": 40}
    await app.wait_for_frame("run.ready", run_id)
    row = next(row for row in owner_http.get("/runs") if row["run_id"] == run_id)
    assert (row["tool"], row["cwd"], row["status"]) == ("codex", str(repository), "running")
    assert Path(f"/proc/{row['pid']}").exists()
    assert owner_http.ask("POST", "/runs", {"tool": "x"}).status == 400
    assert owner_http.post(f"/runs/{run_id}/stop", {"signal": "kill"}) == {"signal": "kill"}
    await app.wait_for_frame("run.exited", run_id)
    assert run_id not in [row["run_id"] for row in owner_http.get("/runs")]


@pytest.mark.requirement("relay:local:input", "relay:input:actor-local")
async def test_input_is_typed_by_the_command_line(owner_http: CheckedHttp, app: CheckedApp, waiting_run: str) -> None:
    assert owner_http.ask("POST", f"/runs/{waiting_run}/input", {"input_id": "l-1", "text": "né\n"}).status == 204
    await app.wait_for_frame("run.exited", waiting_run, exit_code=4)
    typed = await app.wait_for_frame("run.input", waiting_run)
    assert (typed["data"]["input_id"], typed["data"]["text_redacted"]) == ("l-1", "né\n")
    assert typed["data"]["actor"] == "cli"
    assert "got:né:" in app.join_output(waiting_run)


@pytest.mark.requirement("relay:local:stop")
async def test_stop_is_term_unless_it_says_kill(owner_http: CheckedHttp, app: CheckedApp, waiting_run: str) -> None:
    assert owner_http.post(f"/runs/{waiting_run}/stop") == {"signal": "term"}
    await app.wait_for_frame("run.exited", waiting_run)


@pytest.mark.requirement("relay:local:tools", "relay:local:tool-names", "relay:tools:around")
async def test_reading_tools_have_names_without_rpc_and_the_actor_local(
    owner_http: CheckedHttp, app: CheckedApp, waiting_run: str
) -> None:
    content = "# A workspace\nwith three lines\nin it\n"
    read = owner_http.post(f"/runs/{waiting_run}/fs/read", {"path": "README.md"})
    assert read == {"path": "README.md", "content": content, "truncated": False}
    found = owner_http.post(f"/runs/{waiting_run}/fs/search", {"q": "three"})
    assert [(match["path"], match["line"]) for match in found["matches"]] == [("README.md", 2)]
    assert owner_http.post(f"/runs/{waiting_run}/git/status")["stdout"] == "## main\n M README.md\n"
    assert "+with three lines" in owner_http.post(f"/runs/{waiting_run}/git/diff", {"path": "README.md"})["stdout"]
    for tool in ("fs.read", "fs.search", "git.status", "git.diff"):
        call, result = await list_call_frames(app, waiting_run, tool)
        assert (call["tool"], call["actor"], result["actor"], result["ok"]) == (tool, "local", "local", True)


@pytest.mark.requirement("relay:local:tools", "relay:local:gated")
@pytest.mark.parametrize(
    ("path", "body", "tool"),
    [("fs/write", {"path": "a.txt", "content": "x"}, "fs.write"), ("bash", {"cmd": "echo hi > a.txt"}, "bash")],
)
async def test_writing_tools_are_gated_here_too(
    owner_http: CheckedHttp, app: CheckedApp, waiting_run: str, repository: Path, path: str, body: dict[str, str], tool: str
) -> None:
    asking = asyncio.create_task(asyncio.to_thread(owner_http.ask, "POST", f"/runs/{waiting_run}/{path}", body))
    asked = await app.wait_for_frame("run.permission_requested", waiting_run)
    call = await app.wait_for_frame("tool.call", waiting_run, tool=tool)
    assert call["seq"] < asked["seq"]
    assert (asked["data"]["request_id"], asked["data"]["op_tool"]) == (call["data"]["request_id"], tool)
    assert not (repository / "a.txt").exists()
    await app.send_command("run.permission.approve", waiting_run, request_id=asked["data"]["request_id"])
    assert (await asking).status == 200
    assert (repository / "a.txt").exists()
    _, result = await list_call_frames(app, waiting_run, tool)
    assert (result["actor"], result["ok"]) == ("local", True)


@pytest.mark.requirement("relay:local:errors")
def test_refusals_have_the_documents_words(owner_http: CheckedHttp, waiting_run: str) -> None:
    assert owner_http.post("/runs/run_that_is_none/fs/read", {"path": "x"}, 404)["error"] == "unknown run_id"
    for path, error in (("/etc/passwd", "path must be relative"), ("../x", "path contains ..")):
        reply = owner_http.ask("POST", f"/runs/{waiting_run}/fs/read", {"path": path})
        assert 400 <= reply.status < 500
        assert reply.json["error"] == error


@pytest.fixture
def owner_connection(hub: ManagedDaemon) -> Iterator[socket.socket]:
    """A bare connection to the owner's socket."""
    path = json.loads((hub.home / "run" / "endpoints.json").read_bytes())["hostd_socket"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(path)
        yield connection


@pytest.mark.requirement("relay:local:stdout", "relay:local:stdin")
def test_stdin_is_typed_as_it_is_streamed_and_stdout_streamed_as_it_comes(
    hub: ManagedDaemon, owner_http: CheckedHttp, owner_connection: socket.socket, repository: Path
) -> None:
    run_id = start(owner_http, "echo up; read a; echo got:$a:; read b; echo got:$b:; exit 3", repository)
    reading = owner_http.open_connection()
    reading.request("GET", f"/runs/{run_id}/stdout?from=start")
    output = reading.getresponse()
    assert output.status == 200

    def until(part: bytes) -> bytes:
        seen = b""
        while part not in seen:
            piece = output.read1(65_536)
            assert piece, f"the stream ended before {part!r}: {seen!r}"
            seen += piece
        return seen

    until(b"up")
    head = f"POST /runs/{run_id}/stdin HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    owner_connection.sendall(head.encode() + b"3\r\nn\xc3\xa9\r\n1\r\n\n\r\n")
    until("got:né:".encode())
    owner_connection.sendall(b"4\r\nend\n\r\n0\r\n\r\n")
    rest = until(b"got:end:")
    rest += output.read()
    assert rest.rstrip().endswith(b"got:end:"), "the stream ends with the run"
    assert owner_connection.recv(65_536).split()[1] in (b"200", b"204")
    reading.close()


@pytest.mark.requirement("relay:local:stdout")
def test_the_stream_of_a_run_that_has_ended_has_all_of_it(owner_http: CheckedHttp, repository: Path) -> None:
    run_id = start(owner_http, "seq 1 500", repository)
    reply = owner_http.ask("GET", f"/runs/{run_id}/stdout?from=start")
    assert reply.body.split() == [str(number).encode() for number in range(1, 501)]


@pytest.mark.requirement("relay:runs:environment", "relay:local:of-a-run")
async def test_a_run_reaches_its_own_host_but_decides_nothing_there(
    hub: ManagedDaemon, app: CheckedApp, owner_http: CheckedHttp, repository: Path
) -> None:
    script = (
        "curl -s --unix-socket $RELAY_HOSTD_SOCK http://localhost/runs/$RELAY_RUN_ID/git/status > seen.json; "
        "curl -s -o /dev/null -w '%{http_code}' --unix-socket $RELAY_HOSTD_SOCK "
        '-d \'{"cmd":"true"}\' http://localhost/runs > code'
    )
    run_id = start(owner_http, script, repository)
    await app.wait_for_frame("run.exited", run_id)
    assert "## main" in json.loads((repository / "seen.json").read_text())["stdout"]
    assert (repository / "code").read_text() == "403"
