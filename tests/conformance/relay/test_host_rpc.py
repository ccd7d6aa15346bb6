"""The calls that our host answers: results, limits, refusals, gates, and the two events around each."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.relay.conftest import HostWithFakeHub
from tests.conformance.relay.fake_hub import FakeHub

from switchtower.protocols.relay.settings import HostSettings
from switchtower.tools import remote_ops

RPCS = {
    *("rpc.fs.read", "rpc.fs.search", "rpc.fs.list", "rpc.fs.write", "rpc.bash", "rpc.git.status", "rpc.git.diff"),
    *("rpc.runs.list", "rpc.run.stop", "rpc.run.start"),
    *("rpc.host.info", "rpc.host.doctor", "rpc.host.capabilities", "rpc.host.logs.tail"),
}
INFO = {"host_id", "pid", "os", "arch", "version", "tools"}


@pytest.fixture
def waiting_run(linked_fake_hub: FakeHub, repository: Path) -> Iterator[str]:
    """A run that waits, in a folder under git."""
    run_id = linked_fake_hub.start("read x", repository)
    linked_fake_hub.wait_for("run.ready", run_id)
    yield run_id
    linked_fake_hub.send("run.stop", {"signal": "kill"}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)


def list_call_messages(hub: FakeHub, run_id: str, request_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The call and the result that were told, which come once each and in that order."""
    hub.wait_for("tool.result", run_id, request_id=request_id)
    call, result = (
        frame for frame in hub.list_run_messages(run_id, "tool.call", "tool.result") if frame["data"]["request_id"] == request_id
    )
    assert (call["type"], result["type"]) == ("tool.call", "tool.result")
    return call["data"], result["data"]


@pytest.mark.requirement("relay:rpc:fs-read", "relay:tools:around")
def test_fs_read_gives_a_file_and_is_told_as_a_call_and_its_result(linked_fake_hub: FakeHub, waiting_run: str) -> None:
    answer = linked_fake_hub.call("rpc.fs.read", waiting_run, request_id="read-1", path="README.md", actor="cli")
    content = "# A workspace\nwith three lines\nin it\n"
    assert answer["run_id"] == waiting_run
    result = {"path": "README.md", "content": content, "truncated": False}
    assert answer["data"] == {"request_id": "read-1", "ok": True, "rpc_type": "rpc.fs.read", "result": result}
    call, told = list_call_messages(linked_fake_hub, waiting_run, "read-1")
    assert call == {"request_id": "read-1", "tool": "rpc.fs.read", "actor": "cli", "args": {"path": "README.md"}}
    assert (told["tool"], told["actor"], told["ok"]) == ("rpc.fs.read", "cli", True)
    assert told["result"]["path"] == "README.md"


@pytest.mark.requirement("relay:limits:fs-read", "relay:faults:answers-stored")
def test_fs_read_gives_a_mebibyte_and_events_only_a_beginning(
    linked_fake_hub: FakeHub, waiting_run: str, repository: Path
) -> None:
    (repository / "exact").write_text("x" * 1024 * 1024)
    (repository / "long").write_text("é" * 1024 * 1024)
    exact = linked_fake_hub.request_result("rpc.fs.read", waiting_run, path="exact")
    assert (len(exact["content"]), exact["truncated"]) == (1024 * 1024, False)
    long = linked_fake_hub.request_result("rpc.fs.read", waiting_run, request_id="long", path="long")
    assert (long["content"], long["truncated"]) == ("é" * (512 * 1024), True)
    _, told = list_call_messages(linked_fake_hub, waiting_run, "long")
    assert len(json.dumps(told)) < 20_000


@pytest.mark.requirement("relay:rpc:path-errors", "relay:tools:failure")
@pytest.mark.parametrize("type_", ["rpc.fs.read", "rpc.fs.list", "rpc.fs.write"])
def test_paths_out_of_the_runs_folder_are_refused_in_the_documents_words(
    linked_fake_hub: FakeHub, waiting_run: str, repository: Path, type_: str
) -> None:
    more = {"content": "x"} if type_ == "rpc.fs.write" else {}
    (repository / "out").symlink_to("/etc")
    assert linked_fake_hub.request_error(type_, waiting_run, path="/etc/passwd", **more) == "path must be relative"
    assert linked_fake_hub.request_error(type_, waiting_run, path="../x", **more) == "path contains .."
    assert linked_fake_hub.request_error(type_, waiting_run, path="a/../b", **more) == "path contains .."
    if type_ == "rpc.fs.write":
        assert linked_fake_hub.request_error(type_, waiting_run, path="out/tw", **more) == "path escapes run cwd"
        return
    assert (
        linked_fake_hub.request_error(type_, waiting_run, request_id=f"l-{type_}{waiting_run}", path="out", **more)
        == "path escapes run cwd"
    )
    _, told = list_call_messages(linked_fake_hub, waiting_run, f"l-{type_}{waiting_run}")
    assert (told["ok"], told["error"]) == (False, "path escapes run cwd")


@pytest.mark.requirement("relay:rpc:errors")
def test_unknown_runs_and_unknown_calls_are_refused_in_the_documents_words(linked_fake_hub: FakeHub, waiting_run: str) -> None:
    for type_, data in (("rpc.fs.read", {"path": "x"}), ("rpc.git.status", {}), ("rpc.runs.list", {}), ("rpc.run.stop", {})):
        assert linked_fake_hub.request_error(type_, "run_that_is_none", **data) == "unknown run_id"
    assert linked_fake_hub.request_error("rpc.fs.read", path="x") == "unknown run_id"
    assert linked_fake_hub.request_error("rpc.juggle", waiting_run) == "unknown rpc type"


@pytest.mark.requirement("relay:rpc:fs-search")
def test_fs_search_finds_lines_with_their_places(linked_fake_hub: FakeHub, waiting_run: str, repository: Path) -> None:
    (repository / "sub").mkdir()
    (repository / "sub" / "found.txt").write_text("nothing\nhere is a needle in it\n")
    result = linked_fake_hub.request_result("rpc.fs.search", waiting_run, q="needle")
    place = {"path": "sub/found.txt", "line": 2, "column": 11, "text": "here is a needle in it"}
    assert result == {"matches": [place], "truncated": False}
    assert linked_fake_hub.request_result("rpc.fs.search", waiting_run, q="no such words")["matches"] == []


@pytest.mark.requirement("relay:limits:fs-search")
def test_fs_search_gives_200_matches(linked_fake_hub: FakeHub, waiting_run: str, repository: Path) -> None:
    (repository / "many.txt").write_text("needle\n" * 201)
    result = linked_fake_hub.request_result("rpc.fs.search", waiting_run, q="needle")
    assert (len(result["matches"]), result["truncated"]) == (200, True)
    (repository / "many.txt").write_text("needle\n" * 200)
    result = linked_fake_hub.request_result("rpc.fs.search", waiting_run, q="needle")
    assert (len(result["matches"]), result["truncated"]) == (200, False)


@pytest.mark.requirement("relay:faults:search-flags")
@pytest.mark.parametrize("query", ["--files", "-e", "--pre=touch pwned", "--", "-f/etc/passwd"])
def test_a_query_is_never_an_option_of_the_searcher(
    linked_fake_hub: FakeHub, waiting_run: str, repository: Path, query: str
) -> None:
    (repository / "flags.txt").write_text(f"before\nuse {query} here\n")
    result = linked_fake_hub.request_result("rpc.fs.search", waiting_run, q=query)
    assert [(match["path"], match["line"]) for match in result["matches"]] == [("flags.txt", 2)]
    assert not (repository / "pwned").exists()


@pytest.mark.requirement("relay:rpc:fs-list")
def test_fs_list_gives_entries_with_sizes_of_files_only(linked_fake_hub: FakeHub, waiting_run: str, repository: Path) -> None:
    (repository / "sub").mkdir()
    (repository / "sub" / "a.txt").write_text("four")
    (repository / "sub" / "deep").mkdir()
    result = linked_fake_hub.request_result("rpc.fs.list", waiting_run, path="sub")
    entries = sorted(result["entries"], key=lambda entry: str(entry["name"]))
    assert entries == [{"name": "a.txt", "is_dir": False, "size_bytes": 4}, {"name": "deep", "is_dir": True, "size_bytes": None}]
    assert (result["path"], result["truncated"], set(result)) == ("sub", False, {"path", "entries", "truncated"})
    default = linked_fake_hub.request_result("rpc.fs.list", waiting_run)
    assert default["path"] == "."
    assert {"README.md", "sub"} <= {entry["name"] for entry in default["entries"]}


@pytest.mark.requirement("relay:limits:fs-list")
def test_fs_list_gives_500_entries(linked_fake_hub: FakeHub, waiting_run: str, repository: Path) -> None:
    folder = repository / "full"
    folder.mkdir()
    for number in range(500):
        (folder / f"{number:03}").touch()
    result = linked_fake_hub.request_result("rpc.fs.list", waiting_run, path="full")
    assert (len(result["entries"]), result["truncated"]) == (500, False)
    (folder / "one more").touch()
    result = linked_fake_hub.request_result("rpc.fs.list", waiting_run, path="full")
    assert (len(result["entries"]), result["truncated"]) == (500, True)


# Gated calls


@pytest.mark.requirement("relay:gate:order", "relay:rpc:fs-write")
def test_fs_write_is_told_asked_about_under_its_own_id_and_done_when_approved(
    linked_fake_hub: FakeHub, waiting_run: str, repository: Path
) -> None:
    request_id = str(uuid4())
    linked_fake_hub.send("rpc.fs.write", {"request_id": request_id, "path": "new/a.txt", "content": "né"}, run_id=waiting_run)
    asked = linked_fake_hub.wait_for("run.permission_requested", waiting_run, request_id=request_id)
    call = linked_fake_hub.wait_for("tool.call", waiting_run, request_id=request_id)
    assert call["seq"] < asked["seq"]
    assert (asked["data"]["op_tool"], asked["data"]["op_args"]["path"]) == ("rpc.fs.write", "new/a.txt")
    assert not (repository / "new").exists(), "nothing is done before somebody has decided"
    linked_fake_hub.send("run.permission.approve", {"request_id": request_id}, run_id=waiting_run)
    answer = linked_fake_hub.wait_for("rpc.response", request_id=request_id)["data"]
    assert answer["result"] == {"path": "new/a.txt", "bytes_written": 3}
    assert (repository / "new" / "a.txt").read_text() == "né"
    _, told = list_call_messages(linked_fake_hub, waiting_run, request_id)
    assert told["ok"] is True
    assert linked_fake_hub.list_run_messages(waiting_run, "run.input") == [], (
        "a decision about a call types nothing into the terminal"
    )


@pytest.mark.requirement("relay:gate:fails-first")
def test_what_must_fail_is_refused_before_anybody_is_asked(linked_fake_hub: FakeHub, waiting_run: str, repository: Path) -> None:
    (repository / "folder").mkdir()
    (repository / "link").symlink_to("/etc")
    since = linked_fake_hub.forget()
    for path, problem in (("folder", "is a directory"), ("link/x", "path escapes run cwd"), ("new/", "is a directory")):
        assert linked_fake_hub.request_error("rpc.fs.write", waiting_run, path=path, content="x") == problem
    assert linked_fake_hub.request_error("rpc.bash", waiting_run, cmd=" ") == "`cmd` is empty"
    assert linked_fake_hub.list_run_messages(waiting_run, "run.permission_requested", since=since) == []
    assert not (repository / "new").exists()


@pytest.mark.requirement("relay:gate:preview")
def test_what_would_be_written_is_shown_whole_or_not_asked_about(
    linked_fake_hub: FakeHub, waiting_run: str, repository: Path
) -> None:
    linked_fake_hub.send("rpc.fs.write", {"request_id": "big", "path": "big", "content": "x" * 100_000}, run_id=waiting_run)
    asked = linked_fake_hub.wait_for("run.permission_requested", waiting_run, request_id="big")
    assert asked["data"]["op_args"]["content"] == "x" * 100_000
    assert len(asked["data"]["op_args_summary"]) <= 80
    linked_fake_hub.send("run.permission.approve", {"request_id": "big"}, run_id=waiting_run)
    assert linked_fake_hub.wait_for("rpc.response", request_id="big")["data"]["result"]["bytes_written"] == 100_000
    call, _ = list_call_messages(linked_fake_hub, waiting_run, "big")
    assert len(json.dumps(call)) < 10_000
    linked_fake_hub.send("rpc.fs.write", {"request_id": "huge", "path": "huge", "content": "x" * 500_000}, run_id=waiting_run)
    refused = linked_fake_hub.wait_for("rpc.response", request_id="huge")["data"]
    assert (refused["ok"], "cannot be shown" in refused["error"]) == (False, True)
    assert not (repository / "huge").exists()


@pytest.mark.requirement("relay:gate:denied")
@pytest.mark.parametrize(("type_", "data"), [("rpc.fs.write", {"path": "no", "content": "x"}), ("rpc.bash", {"cmd": "touch no"})])
def test_a_denied_call_is_not_done_and_answered_denied(
    linked_fake_hub: FakeHub, waiting_run: str, repository: Path, type_: str, data: dict[str, str]
) -> None:
    request_id = str(uuid4())
    linked_fake_hub.send(type_, {"request_id": request_id, **data}, run_id=waiting_run)
    linked_fake_hub.wait_for("run.permission_requested", waiting_run, request_id=request_id)
    linked_fake_hub.send("run.permission.deny", {"request_id": request_id}, run_id=waiting_run)
    assert linked_fake_hub.wait_for("rpc.response", request_id=request_id)["data"]["error"] == "denied"
    _, told = list_call_messages(linked_fake_hub, waiting_run, request_id)
    assert (told["ok"], told["error"]) == (False, "denied")
    assert not (repository / "no").exists()


def run_bash(hub: FakeHub, run_id: str, cmd: str) -> Any:
    request_id = str(uuid4())
    hub.send("rpc.bash", {"request_id": request_id, "cmd": cmd}, run_id=run_id)
    asked = hub.wait_for("run.permission_requested", run_id, request_id=request_id)["data"]
    assert (asked["op_tool"], asked["op_args"]) == ("bash", {"cmd": cmd})
    assert (asked["approve_text"], asked["deny_text"]) == ("", "")
    hub.send("run.permission.approve", {"request_id": request_id}, run_id=run_id)
    return hub.wait_for("rpc.response", request_id=request_id)["data"]["result"]


@pytest.mark.requirement("relay:rpc:bash", "relay:gate:op-tool", "relay:gate:no-text", "relay:faults:bash-loses-output")
def test_bash_gives_both_channels_and_the_exit_code_also_when_it_fails(
    linked_fake_hub: FakeHub, waiting_run: str, repository: Path
) -> None:
    result = run_bash(linked_fake_hub, waiting_run, "pwd; echo oh >&2; shopt -q login_shell && echo login; exit 3")
    assert result == {"stdout": f"{repository}\nlogin\n", "stderr": "oh\n", "exit_code": 3, "truncated": False}


@pytest.mark.requirement("relay:limits:bash")
def test_what_bash_puts_out_is_truncated(linked_fake_hub: FakeHub, waiting_run: str) -> None:
    result = run_bash(linked_fake_hub, waiting_run, "head -c 2000000 /dev/zero | tr '\\0' x")
    assert result["truncated"] is True
    assert len(result["stdout"]) < 200_000


@pytest.mark.requirement("relay:limits:bash")
def test_a_command_that_leaves_something_running_is_answered(linked_fake_hub: FakeHub, waiting_run: str) -> None:
    assert run_bash(linked_fake_hub, waiting_run, "sleep 500 & echo started")["stdout"] == "started\n"


@pytest.mark.requirement("relay:faults:bash-timeout")
async def test_a_command_has_a_time_after_which_it_ends_with_what_it_put_out(tmp_path: Path) -> None:
    usual = HostSettings(host_id="h", version="1", default_cwd="/", approval_timeout_ms=1, log_path=None)
    assert 0 < usual.bash_timeout_s <= 600
    environment = {"PATH": os.defpath, "HOME": str(tmp_path)}
    cmd = "echo so far; sleep 500"
    result = await remote_ops.run_bash(str(tmp_path), cmd, "run_timed", timeout_s=0.5, environment=environment)
    assert (result.stdout, result.exit_code) == ("so far\n", 124)


# git


@pytest.mark.requirement("relay:rpc:git-status")
def test_git_status_is_the_porcelain_with_its_branch(linked_fake_hub: FakeHub, waiting_run: str, repository: Path) -> None:
    (repository / "untracked").touch()
    result = linked_fake_hub.request_result("rpc.git.status", waiting_run, request_id="gs")
    assert result == {"stdout": "## main\n M README.md\n?? untracked\n", "truncated": False}
    call, _ = list_call_messages(linked_fake_hub, waiting_run, "gs")
    assert call["tool"] == "rpc.git.status"


@pytest.mark.requirement("relay:rpc:git-diff")
def test_git_diff_may_be_of_one_path(linked_fake_hub: FakeHub, waiting_run: str, repository: Path) -> None:
    whole = linked_fake_hub.request_result("rpc.git.diff", waiting_run)
    assert set(whole) == {"stdout", "truncated"}
    assert "-with two lines" in whole["stdout"]
    assert "+with three lines" in linked_fake_hub.request_result("rpc.git.diff", waiting_run, path="README.md")["stdout"]
    assert linked_fake_hub.request_result("rpc.git.diff", waiting_run, path="another")["stdout"] == ""
    assert linked_fake_hub.request_error("rpc.git.diff", waiting_run, path="../x") == "path contains .."
    assert linked_fake_hub.request_error("rpc.git.diff", waiting_run, path="/x") == "path must be relative"


# Runs and hosts


@pytest.mark.requirement("relay:rpc:runs-list")
def test_runs_list_has_those_that_run_here(linked_fake_hub: FakeHub, waiting_run: str, repository: Path) -> None:
    asking = linked_fake_hub.start("printf 'Proceed? (y/n) '; read x", repository, tool="gemini")
    request_id = linked_fake_hub.wait_for("run.awaiting_input", asking)["data"]["request_id"]
    ended = linked_fake_hub.start("true", repository)
    linked_fake_hub.wait_for("run.exited", ended)
    runs = {row["run_id"]: row for row in linked_fake_hub.request_result("rpc.runs.list", waiting_run)["runs"]}
    assert ended not in runs
    for row in runs.values():
        assert set(row) == {"run_id", "pid", "tool", "cwd", "awaiting_input", "pending_request_id"}
        assert Path(f"/proc/{row['pid']}").exists()
    assert (runs[waiting_run]["cwd"], runs[waiting_run]["pending_request_id"]) == (str(repository), None)
    shown = runs[asking]
    assert (shown["tool"], shown["awaiting_input"], shown["pending_request_id"]) == ("gemini", True, request_id)
    linked_fake_hub.send("run.stop", {"signal": "kill"}, run_id=asking)
    linked_fake_hub.wait_for("run.exited", asking)


@pytest.mark.requirement("relay:rpc:run-stop")
@pytest.mark.parametrize(("data", "signal"), [({}, "term"), ({"signal": "term"}, "term"), ({"signal": "kill"}, "kill")])
def test_run_stop_is_answered_with_its_signal(
    linked_fake_hub: FakeHub, workspace: Path, data: dict[str, str], signal: str
) -> None:
    run_id = linked_fake_hub.start("read x", workspace)
    linked_fake_hub.wait_for("run.ready", run_id)
    assert linked_fake_hub.request_result("rpc.run.stop", run_id, **data) == {"signal": signal}
    linked_fake_hub.wait_for("run.exited", run_id)


@pytest.mark.requirement("relay:rpc:run-start", "relay:rpc:run-start-envelope")
def test_run_start_is_answered_with_the_run_in_the_envelope_and_in_the_result(
    linked_fake_hub: FakeHub, shared_linked_host: HostWithFakeHub, workspace: Path
) -> None:
    data = {"host_id": shared_linked_host.host_id, "tool": "iflow", "cmd": "true", "cwd": str(workspace)}
    answer = linked_fake_hub.call("rpc.run.start", **data)
    run_id = answer["data"]["result"]["run_id"]
    assert answer["data"]["result"] == {"run_id": run_id}
    assert answer["run_id"] == run_id
    linked_fake_hub.wait_for("run.exited", run_id, exit_code=0)
    assert linked_fake_hub.request_error("rpc.run.start", **{**data, "cwd": "/no/such/folder"})
    assert linked_fake_hub.request_error("rpc.run.start", **{**data, "host_id": "another-host"}) == "unknown host_id"


@pytest.mark.requirement("relay:rpc:host-info", "relay:rpc:host-doctor", "relay:rpc:host-capabilities")
def test_a_host_tells_who_it_is_what_it_has_and_what_it_can(
    linked_fake_hub: FakeHub, shared_linked_host: HostWithFakeHub
) -> None:
    host_id = shared_linked_host.host_id
    info = linked_fake_hub.request_result("rpc.host.info", host_id=host_id)
    assert set(info) == INFO
    assert (info["host_id"], info["pid"]) == (host_id, shared_linked_host.daemon.pid)
    assert {tool["tool"] for tool in info["tools"]} >= {"codex", "claude", "gemini", "iflow"}
    for tool in info["tools"]:
        assert set(tool) == {"tool", "bin", "ok", "error"}
        assert (tool["error"] is None) == tool["ok"]
    doctor = linked_fake_hub.request_result("rpc.host.doctor", host_id=host_id)
    assert set(doctor) == INFO | {"deps"}
    assert {dep["name"]: dep["ok"] for dep in doctor["deps"]}["bash"] is True
    assert {tuple(sorted(dep)) for dep in doctor["deps"]} == {("name", "ok")}
    able = linked_fake_hub.request_result("rpc.host.capabilities", host_id=host_id)
    places = {"server_base_url", "local_unix_socket", "spool_db_path", "log_path"}
    assert set(able) == INFO | {"deps", "supported_rpc"} | places
    assert set(able["supported_rpc"]) == RPCS
    assert able["server_base_url"] == linked_fake_hub.url
    assert Path(able["local_unix_socket"]).is_socket()
    assert Path(able["spool_db_path"]).exists()


@pytest.mark.requirement("relay:rpc:logs-tail", "relay:limits:logs-tail")
def test_logs_tail_gives_the_last_lines_within_its_limits(linked_fake_hub: FakeHub, shared_linked_host: HostWithFakeHub) -> None:
    host_id = shared_linked_host.host_id
    log = shared_linked_host.daemon.home / "logs" / "tower.log"
    with log.open("a") as file:
        file.writelines(f"line {number} {'x' * 90}\n" for number in range(30_000))

    def tail(**limits: Any) -> Any:
        return linked_fake_hub.request_result("rpc.host.logs.tail", host_id=host_id, **limits)

    usual = tail()
    assert set(usual) == {"path", "text", "truncated"}
    assert usual["path"] == str(log)
    assert len(usual["text"].splitlines()) == 200
    assert usual["truncated"] is True
    assert re.match("line 29999", tail(lines=1)["text"])
    assert len(tail(lines=9_999, max_bytes=2_000_000)["text"].splitlines()) == 2_000
    assert 150_000 < len(tail(lines=2_000)["text"]) <= 200_000
    few = tail(lines=2_000, max_bytes=1_000)
    assert len(few["text"]) <= 1_000
    assert tail(lines=2_000, max_bytes=99_999_999)["text"].splitlines()[-1].startswith("line 29999")


@pytest.mark.requirement("relay:rpc:request-id")
def test_a_call_without_an_id_cannot_be_answered_and_is_not_done(
    linked_fake_hub: FakeHub, waiting_run: str, repository: Path
) -> None:
    since = linked_fake_hub.forget()
    linked_fake_hub.send("rpc.fs.read", {"path": "README.md"}, run_id=waiting_run)
    assert "request_id" in linked_fake_hub.wait_for("error", since=since)["data"]["error"]
    assert linked_fake_hub.list_run_messages(waiting_run, "tool.call") == []
