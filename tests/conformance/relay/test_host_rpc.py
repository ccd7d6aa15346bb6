"""The calls that our host answers: results, limits, refusals, gates, and the two events around each."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.relay.conftest import Linked
from tests.conformance.relay.fake_hub import FakeHub

from switchtower.protocols.relay.host.settings import HostSettings
from switchtower.tools import workbench

RPCS = {
    *("rpc.fs.read", "rpc.fs.search", "rpc.fs.list", "rpc.fs.write", "rpc.bash", "rpc.git.status", "rpc.git.diff"),
    *("rpc.runs.list", "rpc.run.stop", "rpc.run.start"),
    *("rpc.host.info", "rpc.host.doctor", "rpc.host.capabilities", "rpc.host.logs.tail"),
}
INFO = {"host_id", "pid", "os", "arch", "version", "tools"}


@pytest.fixture
def run(linked: FakeHub, repository: Path) -> Iterator[str]:
    """A run that waits, in a folder under git."""
    run_id = linked.start("read x", repository)
    linked.until("run.ready", run_id)
    yield run_id
    linked.send("run.stop", {"signal": "kill"}, run_id=run_id)
    linked.until("run.exited", run_id)


def around(hub: FakeHub, run_id: str, request_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The call and the result that were told, which come once each and in that order."""
    hub.until("tool.result", run_id, request_id=request_id)
    call, result = (frame for frame in hub.of(run_id, "tool.call", "tool.result") if frame["data"]["request_id"] == request_id)
    assert (call["type"], result["type"]) == ("tool.call", "tool.result")
    return call["data"], result["data"]


@pytest.mark.requirement("relay:rpc:fs-read", "relay:tools:around")
def test_fs_read_gives_a_file_and_is_told_as_a_call_and_its_result(linked: FakeHub, run: str) -> None:
    answer = linked.call("rpc.fs.read", run, request_id="read-1", path="README.md", actor="cli")
    content = "# A workspace\nwith three lines\nin it\n"
    assert answer["run_id"] == run
    result = {"path": "README.md", "content": content, "truncated": False}
    assert answer["data"] == {"request_id": "read-1", "ok": True, "rpc_type": "rpc.fs.read", "result": result}
    call, told = around(linked, run, "read-1")
    assert call == {"request_id": "read-1", "tool": "rpc.fs.read", "actor": "cli", "args": {"path": "README.md"}}
    assert (told["tool"], told["actor"], told["ok"]) == ("rpc.fs.read", "cli", True)
    assert told["result"]["path"] == "README.md"


@pytest.mark.requirement("relay:limits:fs-read", "relay:faults:answers-stored")
def test_fs_read_gives_a_mebibyte_and_events_only_a_beginning(linked: FakeHub, run: str, repository: Path) -> None:
    (repository / "exact").write_text("x" * 1024 * 1024)
    (repository / "long").write_text("é" * 1024 * 1024)
    exact = linked.result("rpc.fs.read", run, path="exact")
    assert (len(exact["content"]), exact["truncated"]) == (1024 * 1024, False)
    long = linked.result("rpc.fs.read", run, request_id="long", path="long")
    assert (long["content"], long["truncated"]) == ("é" * (512 * 1024), True)
    _, told = around(linked, run, "long")
    assert len(json.dumps(told)) < 20_000


@pytest.mark.requirement("relay:rpc:path-errors", "relay:tools:failure")
@pytest.mark.parametrize("type_", ["rpc.fs.read", "rpc.fs.list", "rpc.fs.write"])
def test_paths_out_of_the_runs_folder_are_refused_in_the_documents_words(
    linked: FakeHub, run: str, repository: Path, type_: str
) -> None:
    more = {"content": "x"} if type_ == "rpc.fs.write" else {}
    (repository / "out").symlink_to("/etc")
    assert linked.error(type_, run, path="/etc/passwd", **more) == "path must be relative"
    assert linked.error(type_, run, path="../x", **more) == "path contains .."
    assert linked.error(type_, run, path="a/../b", **more) == "path contains .."
    if type_ == "rpc.fs.write":
        assert linked.error(type_, run, path="out/tw", **more) == "path escapes run cwd"
        return
    assert linked.error(type_, run, request_id=f"l-{type_}{run}", path="out", **more) == "path escapes run cwd"
    _, told = around(linked, run, f"l-{type_}{run}")
    assert (told["ok"], told["error"]) == (False, "path escapes run cwd")


@pytest.mark.requirement("relay:rpc:errors")
def test_unknown_runs_and_unknown_calls_are_refused_in_the_documents_words(linked: FakeHub, run: str) -> None:
    for type_, data in (("rpc.fs.read", {"path": "x"}), ("rpc.git.status", {}), ("rpc.runs.list", {}), ("rpc.run.stop", {})):
        assert linked.error(type_, "run_that_is_none", **data) == "unknown run_id"
    assert linked.error("rpc.fs.read", path="x") == "unknown run_id"
    assert linked.error("rpc.juggle", run) == "unknown rpc type"


@pytest.mark.requirement("relay:rpc:fs-search")
def test_fs_search_finds_lines_with_their_places(linked: FakeHub, run: str, repository: Path) -> None:
    (repository / "sub").mkdir()
    (repository / "sub" / "found.txt").write_text("nothing\nhere is a needle in it\n")
    result = linked.result("rpc.fs.search", run, q="needle")
    place = {"path": "sub/found.txt", "line": 2, "column": 11, "text": "here is a needle in it"}
    assert result == {"matches": [place], "truncated": False}
    assert linked.result("rpc.fs.search", run, q="no such words")["matches"] == []


@pytest.mark.requirement("relay:limits:fs-search")
def test_fs_search_gives_200_matches(linked: FakeHub, run: str, repository: Path) -> None:
    (repository / "many.txt").write_text("needle\n" * 201)
    result = linked.result("rpc.fs.search", run, q="needle")
    assert (len(result["matches"]), result["truncated"]) == (200, True)
    (repository / "many.txt").write_text("needle\n" * 200)
    result = linked.result("rpc.fs.search", run, q="needle")
    assert (len(result["matches"]), result["truncated"]) == (200, False)


@pytest.mark.requirement("relay:faults:search-flags")
@pytest.mark.parametrize("query", ["--files", "-e", "--pre=touch pwned", "--", "-f/etc/passwd"])
def test_a_query_is_never_an_option_of_the_searcher(linked: FakeHub, run: str, repository: Path, query: str) -> None:
    (repository / "flags.txt").write_text(f"before\nuse {query} here\n")
    result = linked.result("rpc.fs.search", run, q=query)
    assert [(match["path"], match["line"]) for match in result["matches"]] == [("flags.txt", 2)]
    assert not (repository / "pwned").exists()


@pytest.mark.requirement("relay:rpc:fs-list")
def test_fs_list_gives_entries_with_sizes_of_files_only(linked: FakeHub, run: str, repository: Path) -> None:
    (repository / "sub").mkdir()
    (repository / "sub" / "a.txt").write_text("four")
    (repository / "sub" / "deep").mkdir()
    result = linked.result("rpc.fs.list", run, path="sub")
    entries = sorted(result["entries"], key=lambda entry: str(entry["name"]))
    assert entries == [{"name": "a.txt", "is_dir": False, "size_bytes": 4}, {"name": "deep", "is_dir": True, "size_bytes": None}]
    assert (result["path"], result["truncated"], set(result)) == ("sub", False, {"path", "entries", "truncated"})
    default = linked.result("rpc.fs.list", run)
    assert default["path"] == "."
    assert {"README.md", "sub"} <= {entry["name"] for entry in default["entries"]}


@pytest.mark.requirement("relay:limits:fs-list")
def test_fs_list_gives_500_entries(linked: FakeHub, run: str, repository: Path) -> None:
    folder = repository / "full"
    folder.mkdir()
    for number in range(500):
        (folder / f"{number:03}").touch()
    result = linked.result("rpc.fs.list", run, path="full")
    assert (len(result["entries"]), result["truncated"]) == (500, False)
    (folder / "one more").touch()
    result = linked.result("rpc.fs.list", run, path="full")
    assert (len(result["entries"]), result["truncated"]) == (500, True)


# Gated calls


@pytest.mark.requirement("relay:gate:order", "relay:rpc:fs-write")
def test_fs_write_is_told_asked_about_under_its_own_id_and_done_when_approved(
    linked: FakeHub, run: str, repository: Path
) -> None:
    request_id = str(uuid4())
    linked.send("rpc.fs.write", {"request_id": request_id, "path": "new/a.txt", "content": "né"}, run_id=run)
    asked = linked.until("run.permission_requested", run, request_id=request_id)
    call = linked.until("tool.call", run, request_id=request_id)
    assert call["seq"] < asked["seq"]
    assert (asked["data"]["op_tool"], asked["data"]["op_args"]["path"]) == ("rpc.fs.write", "new/a.txt")
    assert not (repository / "new").exists(), "nothing is done before somebody has decided"
    linked.send("run.permission.approve", {"request_id": request_id}, run_id=run)
    answer = linked.until("rpc.response", request_id=request_id)["data"]
    assert answer["result"] == {"path": "new/a.txt", "bytes_written": 3}
    assert (repository / "new" / "a.txt").read_text() == "né"
    _, told = around(linked, run, request_id)
    assert told["ok"] is True
    assert linked.of(run, "run.input") == [], "a decision about a call types nothing into the terminal"


@pytest.mark.requirement("relay:gate:fails-first")
def test_what_must_fail_is_refused_before_anybody_is_asked(linked: FakeHub, run: str, repository: Path) -> None:
    (repository / "folder").mkdir()
    (repository / "link").symlink_to("/etc")
    since = linked.forget()
    for path, problem in (("folder", "is a directory"), ("link/x", "path escapes run cwd"), ("new/", "is a directory")):
        assert linked.error("rpc.fs.write", run, path=path, content="x") == problem
    assert linked.error("rpc.bash", run, cmd=" ") == "`cmd` is empty"
    assert linked.of(run, "run.permission_requested", since=since) == []
    assert not (repository / "new").exists()


@pytest.mark.requirement("relay:gate:preview")
def test_what_would_be_written_is_shown_whole_or_not_asked_about(linked: FakeHub, run: str, repository: Path) -> None:
    linked.send("rpc.fs.write", {"request_id": "big", "path": "big", "content": "x" * 100_000}, run_id=run)
    asked = linked.until("run.permission_requested", run, request_id="big")
    assert asked["data"]["op_args"]["content"] == "x" * 100_000
    assert len(asked["data"]["op_args_summary"]) <= 80
    linked.send("run.permission.approve", {"request_id": "big"}, run_id=run)
    assert linked.until("rpc.response", request_id="big")["data"]["result"]["bytes_written"] == 100_000
    call, _ = around(linked, run, "big")
    assert len(json.dumps(call)) < 10_000
    linked.send("rpc.fs.write", {"request_id": "huge", "path": "huge", "content": "x" * 500_000}, run_id=run)
    refused = linked.until("rpc.response", request_id="huge")["data"]
    assert (refused["ok"], "cannot be shown" in refused["error"]) == (False, True)
    assert not (repository / "huge").exists()


@pytest.mark.requirement("relay:gate:denied")
@pytest.mark.parametrize(("type_", "data"), [("rpc.fs.write", {"path": "no", "content": "x"}), ("rpc.bash", {"cmd": "touch no"})])
def test_a_denied_call_is_not_done_and_answered_denied(
    linked: FakeHub, run: str, repository: Path, type_: str, data: dict[str, str]
) -> None:
    request_id = str(uuid4())
    linked.send(type_, {"request_id": request_id, **data}, run_id=run)
    linked.until("run.permission_requested", run, request_id=request_id)
    linked.send("run.permission.deny", {"request_id": request_id}, run_id=run)
    assert linked.until("rpc.response", request_id=request_id)["data"]["error"] == "denied"
    _, told = around(linked, run, request_id)
    assert (told["ok"], told["error"]) == (False, "denied")
    assert not (repository / "no").exists()


def bash(hub: FakeHub, run_id: str, cmd: str) -> Any:
    request_id = str(uuid4())
    hub.send("rpc.bash", {"request_id": request_id, "cmd": cmd}, run_id=run_id)
    asked = hub.until("run.permission_requested", run_id, request_id=request_id)["data"]
    assert (asked["op_tool"], asked["op_args"]) == ("bash", {"cmd": cmd})
    assert (asked["approve_text"], asked["deny_text"]) == ("", "")
    hub.send("run.permission.approve", {"request_id": request_id}, run_id=run_id)
    return hub.until("rpc.response", request_id=request_id)["data"]["result"]


@pytest.mark.requirement("relay:rpc:bash", "relay:gate:op-tool", "relay:gate:no-text", "relay:faults:bash-loses-output")
def test_bash_gives_both_channels_and_the_exit_code_also_when_it_fails(linked: FakeHub, run: str, repository: Path) -> None:
    result = bash(linked, run, "pwd; echo oh >&2; shopt -q login_shell && echo login; exit 3")
    assert result == {"stdout": f"{repository}\nlogin\n", "stderr": "oh\n", "exit_code": 3, "truncated": False}


@pytest.mark.requirement("relay:limits:bash")
def test_what_bash_puts_out_is_truncated(linked: FakeHub, run: str) -> None:
    result = bash(linked, run, "head -c 2000000 /dev/zero | tr '\\0' x")
    assert result["truncated"] is True
    assert len(result["stdout"]) < 200_000


@pytest.mark.requirement("relay:limits:bash")
def test_a_command_that_leaves_something_running_is_answered(linked: FakeHub, run: str) -> None:
    assert bash(linked, run, "sleep 500 & echo started")["stdout"] == "started\n"


@pytest.mark.requirement("relay:faults:bash-timeout")
async def test_a_command_has_a_time_after_which_it_ends_with_what_it_put_out(tmp_path: Path) -> None:
    usual = HostSettings(host_id="h", version="1", default_cwd="/", approval_timeout_ms=1, log_path=None)
    assert 0 < usual.bash_timeout_s <= 600
    environment = {"PATH": os.defpath, "HOME": str(tmp_path)}
    cmd = "echo so far; sleep 500"
    result = await workbench.bash(str(tmp_path), cmd, "run_timed", timeout_s=0.5, environment=environment)
    assert (result.stdout, result.exit_code) == ("so far\n", 124)


# git


@pytest.mark.requirement("relay:rpc:git-status")
def test_git_status_is_the_porcelain_with_its_branch(linked: FakeHub, run: str, repository: Path) -> None:
    (repository / "untracked").touch()
    result = linked.result("rpc.git.status", run, request_id="gs")
    assert result == {"stdout": "## main\n M README.md\n?? untracked\n", "truncated": False}
    call, _ = around(linked, run, "gs")
    assert call["tool"] == "rpc.git.status"


@pytest.mark.requirement("relay:rpc:git-diff")
def test_git_diff_may_be_of_one_path(linked: FakeHub, run: str, repository: Path) -> None:
    whole = linked.result("rpc.git.diff", run)
    assert set(whole) == {"stdout", "truncated"}
    assert "-with two lines" in whole["stdout"]
    assert "+with three lines" in linked.result("rpc.git.diff", run, path="README.md")["stdout"]
    assert linked.result("rpc.git.diff", run, path="another")["stdout"] == ""
    assert linked.error("rpc.git.diff", run, path="../x") == "path contains .."
    assert linked.error("rpc.git.diff", run, path="/x") == "path must be relative"


# Runs and hosts


@pytest.mark.requirement("relay:rpc:runs-list")
def test_runs_list_has_those_that_run_here(linked: FakeHub, run: str, repository: Path) -> None:
    asking = linked.start("printf 'Proceed? (y/n) '; read x", repository, tool="gemini")
    request_id = linked.until("run.awaiting_input", asking)["data"]["request_id"]
    ended = linked.start("true", repository)
    linked.until("run.exited", ended)
    runs = {row["run_id"]: row for row in linked.result("rpc.runs.list", run)["runs"]}
    assert ended not in runs
    for row in runs.values():
        assert set(row) == {"run_id", "pid", "tool", "cwd", "awaiting_input", "pending_request_id"}
        assert Path(f"/proc/{row['pid']}").exists()
    assert (runs[run]["cwd"], runs[run]["pending_request_id"]) == (str(repository), None)
    shown = runs[asking]
    assert (shown["tool"], shown["awaiting_input"], shown["pending_request_id"]) == ("gemini", True, request_id)
    linked.send("run.stop", {"signal": "kill"}, run_id=asking)
    linked.until("run.exited", asking)


@pytest.mark.requirement("relay:rpc:run-stop")
@pytest.mark.parametrize(("data", "signal"), [({}, "term"), ({"signal": "term"}, "term"), ({"signal": "kill"}, "kill")])
def test_run_stop_is_answered_with_its_signal(linked: FakeHub, workspace: Path, data: dict[str, str], signal: str) -> None:
    run_id = linked.start("read x", workspace)
    linked.until("run.ready", run_id)
    assert linked.result("rpc.run.stop", run_id, **data) == {"signal": signal}
    linked.until("run.exited", run_id)


@pytest.mark.requirement("relay:rpc:run-start", "relay:rpc:run-start-envelope")
def test_run_start_is_answered_with_the_run_in_the_envelope_and_in_the_result(
    linked: FakeHub, linked_for_all: Linked, workspace: Path
) -> None:
    data = {"host_id": linked_for_all.host_id, "tool": "iflow", "cmd": "true", "cwd": str(workspace)}
    answer = linked.call("rpc.run.start", **data)
    run_id = answer["data"]["result"]["run_id"]
    assert answer["data"]["result"] == {"run_id": run_id}
    assert answer["run_id"] == run_id
    linked.until("run.exited", run_id, exit_code=0)
    assert linked.error("rpc.run.start", **{**data, "cwd": "/no/such/folder"})
    assert linked.error("rpc.run.start", **{**data, "host_id": "another-host"}) == "unknown host_id"


@pytest.mark.requirement("relay:rpc:host-info", "relay:rpc:host-doctor", "relay:rpc:host-capabilities")
def test_a_host_tells_who_it_is_what_it_has_and_what_it_can(linked: FakeHub, linked_for_all: Linked) -> None:
    host_id = linked_for_all.host_id
    info = linked.result("rpc.host.info", host_id=host_id)
    assert set(info) == INFO
    assert (info["host_id"], info["pid"]) == (host_id, linked_for_all.daemon.pid)
    assert {tool["tool"] for tool in info["tools"]} >= {"codex", "claude", "gemini", "iflow"}
    for tool in info["tools"]:
        assert set(tool) == {"tool", "bin", "ok", "error"}
        assert (tool["error"] is None) == tool["ok"]
    doctor = linked.result("rpc.host.doctor", host_id=host_id)
    assert set(doctor) == INFO | {"deps"}
    assert {dep["name"]: dep["ok"] for dep in doctor["deps"]}["bash"] is True
    assert {tuple(sorted(dep)) for dep in doctor["deps"]} == {("name", "ok")}
    able = linked.result("rpc.host.capabilities", host_id=host_id)
    places = {"server_base_url", "local_unix_socket", "spool_db_path", "log_path"}
    assert set(able) == INFO | {"deps", "supported_rpc"} | places
    assert set(able["supported_rpc"]) == RPCS
    assert able["server_base_url"] == linked.url
    assert Path(able["local_unix_socket"]).is_socket()
    assert Path(able["spool_db_path"]).exists()


@pytest.mark.requirement("relay:rpc:logs-tail", "relay:limits:logs-tail")
def test_logs_tail_gives_the_last_lines_within_its_limits(linked: FakeHub, linked_for_all: Linked) -> None:
    host_id = linked_for_all.host_id
    log = linked_for_all.daemon.home / "logs" / "tower.log"
    with log.open("a") as file:
        file.writelines(f"line {number} {'x' * 90}\n" for number in range(30_000))

    def tail(**limits: Any) -> Any:
        return linked.result("rpc.host.logs.tail", host_id=host_id, **limits)

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
def test_a_call_without_an_id_cannot_be_answered_and_is_not_done(linked: FakeHub, run: str, repository: Path) -> None:
    since = linked.forget()
    linked.send("rpc.fs.read", {"path": "README.md"}, run_id=run)
    assert "request_id" in linked.until("error", since=since)["data"]["error"]
    assert linked.of(run, "tool.call") == []
