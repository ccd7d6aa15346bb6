"""The kinds that are shipped, each in a real run: real files, real commands, a real HTTP server on this machine."""

import asyncio
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.engines.flow.runtime.stage import FlowRuntimeHarness, make_document, make_edge, make_node, play

from switchtower.engines.flow.runtime import failures
from switchtower.engines.flow.runtime.kinds import catalog, port


def get_outputs(told: Mapping[str, Any], step_id: str) -> Any:
    return next(event["outputs"] for event in told["events"] if event.get("step_id") == step_id and "outputs" in event)


def get_error(told: Mapping[str, Any]) -> str:
    assert told["summary"]["error"]["code"] == 2001
    return str(told["summary"]["error"]["message"])


def is_running(pid: str) -> bool:
    """Whether there is such a process, and more of it than an entry that nobody has collected."""
    try:
        status = Path(f"/proc/{pid.strip()}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


async def test_a_file_is_written_and_read_in_the_runs_folder(tmp_path: Path) -> None:
    described = make_document(
        [make_node("w", "file.write", path="made/here.txt", content="grüß"), make_node("r", "file.read", path="made/here.txt")],
        [make_edge("w", "r")],
    )
    told = await play(described, workspace=tmp_path)

    assert get_outputs(told, "r") == {"path": "made/here.txt", "content": "grüß", "bytes": 6}
    assert (tmp_path / "made" / "here.txt").read_text() == "grüß"


@pytest.mark.parametrize("path", ["../out.txt", "/etc/passwd", "link", "a\0b", "nothing", ".", "binary", "\ud800"])
@pytest.mark.parametrize("kind", ["file.read", "file.write"])
async def test_no_file_outside_or_odd_is_touched(tmp_path: Path, kind: str, path: str) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "out.txt").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "out.txt")
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    content = "\ud800" if path in ("nothing", "binary") else "new"
    told = await play(make_document([make_node("f", kind, path=path, content=content)]), workspace=folder)

    assert "secret" not in get_error(told)
    assert (tmp_path / "out.txt").read_text() == "secret"


async def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (1024 * 1024 + 1))
    assert "larger" in get_error(await play(make_document([make_node("f", "file.read", path="big")]), workspace=tmp_path))


async def test_a_command_puts_out_what_it_wrote(tmp_path: Path) -> None:
    told = await play(make_document([make_node("s", "shell", command="pwd; echo bad >&2")]), workspace=tmp_path, allow_shell=True)
    assert get_outputs(told, "s") == {"exit_code": 0, "stdout": f"{tmp_path}\n", "stderr": "bad\n"}


async def test_a_command_that_fails_says_how_and_can_be_tried_again(tmp_path: Path) -> None:
    command = "echo x >> tries; test $(wc -l < tries) -ge 3 || { echo not yet >&2; exit 7; }"
    told = await play(make_document([make_node("s", "shell", command=command, retries=1)]), workspace=tmp_path, allow_shell=True)
    assert told["summary"]["error"]["data"] == {
        "step_id": "s",
        "attempt": 1,
        "retriable": True,
        "details": {"exit_code": 7, "stderr": "not yet\n"},
    }
    assert (await play(make_document([make_node("s", "shell", command=command)]), workspace=tmp_path, allow_shell=True))[
        "status"
    ] == ("completed")


async def test_a_cancelled_command_and_one_left_in_the_background_are_gone_after_the_run(tmp_path: Path) -> None:
    command = "sleep 1000 & echo $! > left; echo $$ > shell; wait"
    stage = FlowRuntimeHarness(
        make_document([make_node("s", "shell", command=command, timeout_ms=60_000)]), workspace=tmp_path, allow_shell=True
    )
    playing = asyncio.create_task(stage.play())
    async with asyncio.timeout(60):
        while not (tmp_path / "shell").exists() or not (tmp_path / "shell").read_text():
            await asyncio.sleep(0.01)
    stage.execution.cancel()
    await playing

    assert not is_running((tmp_path / "left").read_text())
    assert not is_running((tmp_path / "shell").read_text())


async def test_what_a_finished_command_left_behind_ends_with_the_run(tmp_path: Path) -> None:
    command = "sleep 1000 > /dev/null 2>&1 & echo $! > left"
    told = await play(make_document([make_node("s", "shell", command=command)]), workspace=tmp_path, allow_shell=True)

    assert told["status"] == "completed"
    assert not is_running((tmp_path / "left").read_text())


def test_a_flow_with_a_command_is_refused_before_it_runs_unless_the_run_allows_it() -> None:
    with pytest.raises(failures.FlowRejected, match="allow_shell") as refused:
        FlowRuntimeHarness(make_document([make_node("s", "shell", command="true")]))
    assert (refused.value.code, refused.value.step_id) == (1002, "s")


@pytest.mark.parametrize("kind", ["agent.run", "approval", "no.such.kind"])
def test_a_kind_that_cannot_be_had_here_is_refused_before_the_run(kind: str) -> None:
    with pytest.raises(failures.FlowRejected) as refused:
        FlowRuntimeHarness(make_document([make_node("ok", "log", message="x"), make_node("odd", kind)]))
    assert (refused.value.code, refused.value.step_id, refused.value.details) == (1002, "odd", {"kind": kind})


async def test_a_tower_does_what_only_a_tower_can() -> None:
    class Yes:
        async def run_step(self, kind: str, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
            if kind == "approval":
                raise failures.StepFailed("somebody said no")
            return {"did": given["task"]}

    described = make_document([make_node("a", "agent.run", task="dig"), make_node("b", "approval")], [make_edge("a", "b")])
    told = await play(described, tower=Yes())

    assert get_outputs(told, "a") == {"did": "dig"}
    assert get_error(told) == "somebody said no"


async def test_a_log_step_tells_its_message_at_its_level() -> None:
    told = await play(make_document([make_node("l", "log", message="$input", level="Warning")], x="number"), {"x": 1})
    log = next(event for event in told["events"] if event["type"] == "log")
    assert (log["level"], log["message"], log["step_id"]) == ("warning", '{"x":1}', "l")
    assert "loud" in get_error(await play(make_document([make_node("l", "log", message="x", level="loud")])))


@pytest.mark.parametrize(
    ("given", "holds"),
    [
        ({"value": "yes"}, True),
        ({"value": "false"}, False),
        ({"value": "0"}, False),
        ({"value": []}, False),
        ({"value": 200, "equals": "200"}, True),
        ({"value": "a", "equals": "b"}, False),
        ({}, False),
    ],
)
async def test_an_assertion_holds_or_fails_its_step(given: dict[str, Any], holds: bool) -> None:
    told = await play(make_document([make_node("a", "assert", **given)]))
    assert told["status"] == ("completed" if holds else "failed")
    assert [event["state"] for event in told["events"]] == ["started", "succeeded" if holds else "failed"]


@pytest.mark.parametrize("given", [{"ms": "1"}, {"seconds": "0.001"}])
async def test_a_step_sleeps_as_long_as_it_is_told(given: dict[str, Any]) -> None:
    assert get_outputs(await play(make_document([make_node("z", "sleep", **given)])), "z") == {"seconds": 0.001}


async def test_a_sleep_without_a_length_fails() -> None:
    assert "seconds" in get_error(await play(make_document([make_node("z", "sleep")])))


class FixedReplyHandler(BaseHTTPRequestHandler):
    seen: list[tuple[str, str, bytes]]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.seen.append((self.command, self.path, body))
        status = int(self.path.split("/")[1].split("?")[0])
        content = b"x" * 2_000_000 if "big" in self.path else b'{"n": 1}'
        self.send_response(status)
        self.send_header("content-type", "application/json" if "json" in self.path else "text/plain")
        if status == 302:
            self.send_header("location", "file:///etc/passwd")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def site() -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    seen: list[tuple[str, str, bytes]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (FixedReplyHandler,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", seen
    server.shutdown()
    server.server_close()
    thread.join()


Site = tuple[str, list[tuple[str, str, bytes]]]


async def test_http_get_puts_out_status_body_and_json(site: Site) -> None:
    url, seen = site
    told = await play(make_document([make_node("g", "http.get", url=f"{url}/200/json", params={"q": "a b"})]))
    answer = get_outputs(told, "g")
    assert (answer["status"], answer["body"], answer["json"]) == (200, '{"n": 1}', {"n": 1})
    assert seen == [("GET", "/200/json?q=a+b", b"")] or seen == [("GET", "/200/json?q=a%20b", b"")]


async def test_http_request_sends_what_it_is_given(site: Site) -> None:
    url, seen = site
    await play(
        make_document([make_node("p", "http.request", url=f"{url}/200", method="post", json={"a": "$input.x"})], x="number"),
        {"x": 2},
    )
    assert seen == [("POST", "/200", b'{"a":2}')]


@pytest.mark.requirement("rep:errors:retriable")
async def test_an_answer_that_may_change_is_retriable_and_another_is_not(site: Site) -> None:
    url, seen = site
    for status, tries in ((503, 2), (429, 2), (404, 1)):
        seen.clear()
        told = await play(make_document([make_node("g", "http.get", url=f"{url}/{status}?token=hunter2", retries=1)]))
        assert get_error(told) == f"`127.0.0.1` answered {status}"
        assert len(seen) == tries
        assert "hunter2" not in str(told)
    told = await play(make_document([make_node("g", "http.get", url=f"{url}/404", fail_on_status="false")]))
    assert get_outputs(told, "g")["status"] == 404


async def test_what_cannot_be_asked_fails_its_step(site: Site) -> None:
    url, _ = site
    for wrong in ("ftp://x/", "nonsense", "http://", "http://[", f"{url}/302", f"{url}/200/big", "http://127.0.0.1:1/"):
        told = await play(make_document([make_node("g", "http.get", url=wrong)]))
        assert "passwd" not in get_error(told)


async def test_an_mcp_server_is_started_once_called_twice_and_ended(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    call = {"command": sys.executable, "args": [str(server)], "tool": "add"}
    described = make_document(
        [
            make_node("a", "mcp.call", **call, arguments={"a": 1, "b": 2}),
            make_node("b", "mcp.call", **call, arguments={"a": 3, "b": 4}),
        ],
        [make_edge("a", "b")],
    )
    told = await play(described, workspace=tmp_path, allow_shell=True)

    assert [get_outputs(told, step)["text"] for step in "ab"] == ["3", "7"]
    (pid,) = (tmp_path / "pids").read_text().split()
    assert not is_running(pid)


async def test_an_mcp_server_that_would_be_a_program_needs_the_runs_permission() -> None:
    told = await play(make_document([make_node("a", "mcp.call", command="true", tool="x")]))
    assert "allow_shell" in get_error(told)


SERVER = """
import json, os, sys
open("pids", "a").write(f"{os.getpid()}\\n")
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "sums", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        result = {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with kinds, installed as packages are."""
    (tmp_path / "shouting.py").write_text(
        "class Shout:\n    async def run(self, given, context):\n        return {'said': given['word'].upper()}\n"
    )
    installed = tmp_path / "shouting-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        f"[{catalog.GROUP}]\nshout = shouting:Shout\nshell = shouting:Shout\ngone = nowhere:Shout\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugin")
async def test_a_package_adds_kinds_and_takes_none_of_ours() -> None:
    assert {"shout", "gone"} <= set(catalog.list_step_kinds())
    assert set(catalog.list_plugins()) == {"shout", "gone"}
    assert get_outputs(await play(make_document([make_node("s", "shout", word="hey")])), "s") == {"said": "HEY"}


@pytest.mark.usefixtures("plugin")
def test_a_kind_that_cannot_be_loaded_is_refused_before_the_run() -> None:
    with pytest.raises(failures.FlowRejected, match="cannot be loaded"):
        FlowRuntimeHarness(make_document([make_node("g", "gone")]))


def test_the_catalogue_is_sorted_and_names_the_towers_kinds_only_with_a_tower() -> None:
    without = catalog.list_step_kinds()
    assert without == sorted(without)
    assert set(catalog.list_step_kinds(tower=True)) - set(without) == {"agent.run", "approval"}
