"""A run of our host, frame by frame, as a hub that is not ours is told of it."""

import hashlib
import time
from pathlib import Path
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from tests.conformance.relay.conftest import HostWithFakeHub
from tests.conformance.relay.fake_hub import FakeHub

ASK = "printf 'Proceed? (y/n) '; read answer; echo got:$answer:; exit 5"


def list_types(hub: FakeHub, run_id: str) -> list[str]:
    """The types of a run's messages, of which output in a row is one."""
    told: list[str] = []
    for frame in hub.list_run_messages(run_id):
        if frame["type"] != "run.output" or told[-1:] != ["run.output"]:
            told.append(frame["type"])
    return told


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_file(path: Path) -> str:
    deadline = time.monotonic() + 15
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
    return path.read_text()


@pytest.mark.requirement(
    "relay:runs:order",
    "relay:runs:seq-from-1",
    "relay:faults:exited-too-early",
    "relay:runs:started-fields",
    "relay:runs:exit-code",
    "relay:clients:run-ready",
)
def test_a_run_is_started_ready_puts_out_and_exits_in_that_order(
    linked_fake_hub: FakeHub, shared_linked_host: HostWithFakeHub, workspace: Path
) -> None:
    run_id = linked_fake_hub.start("echo first; seq 1 3000; printf last; exit 7", workspace, tool="codex")
    linked_fake_hub.wait_for("run.exited", run_id)
    told = linked_fake_hub.list_run_messages(run_id)
    assert list_types(linked_fake_hub, run_id) == ["run.started", "run.ready", "run.output", "run.exited"]
    assert told[0]["seq"] == 1
    assert [frame["seq"] for frame in told] == sorted({frame["seq"] for frame in told})
    command = "echo first; seq 1 3000; printf last; exit 7"
    size = {"cols": 120, "rows": 40}
    assert told[0]["data"] == {"tool": "codex", "cwd": str(workspace), "command": command, **size}
    assert told[1]["data"] == {"runner_mode": "pty"}
    assert told[-1]["data"] == {"exit_code": 7}
    assert {frame["host_id"] for frame in told} == {shared_linked_host.host_id}
    output = linked_fake_hub.get_output(run_id)
    assert output.split() == ["first", *map(str, range(1, 3001)), "last"]


@pytest.mark.requirement("relay:runs:coalesced")
def test_output_is_put_together_and_no_piece_is_much_larger_than_16_kib(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start("for i in $(seq 1 300); do printf x; done; head -c 200000 /dev/zero | tr '\\0' y", workspace)
    linked_fake_hub.wait_for("run.exited", run_id)
    pieces = [frame["data"]["text"] for frame in linked_fake_hub.list_run_messages(run_id, "run.output")]
    assert len("".join(pieces)) == 200_300
    assert max(map(len, pieces)) <= 16_384 + 64
    assert len(pieces) < 100


@pytest.mark.requirement("relay:faults:split-utf8")
def test_no_character_is_split_however_it_is_written(linked_fake_hub: FakeHub, workspace: Path) -> None:
    script = workspace / "bytes.py"
    script.write_text(
        "import os, time\n"
        "for byte in 'né🚂中'.encode():\n"
        "    os.write(1, bytes((byte,)))\n"
        "    time.sleep(0.15)\n"
        "os.write(1, ('é' * 30_000).encode())\n"
    )
    run_id = linked_fake_hub.start(f"python3 {script}", workspace)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert linked_fake_hub.get_output(run_id) == "né🚂中" + "é" * 30_000


@pytest.mark.requirement("relay:runs:binary")
def test_rubbish_that_is_no_text_is_survived(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start(r"printf '\377\376\000ok\n'; head -c 5000 /dev/urandom; exit 1", workspace)
    linked_fake_hub.wait_for("run.exited", run_id, exit_code=1)
    assert "ok" in linked_fake_hub.get_output(run_id)


@pytest.mark.requirement("relay:runs:environment")
def test_a_run_finds_itself_in_its_environment(
    linked_fake_hub: FakeHub, shared_linked_host: HostWithFakeHub, workspace: Path
) -> None:
    run_id = linked_fake_hub.start("env > seen.txt; echo done >> seen.txt", workspace, tool="claude")
    linked_fake_hub.wait_for("run.exited", run_id)
    seen = dict(line.split("=", 1) for line in (workspace / "seen.txt").read_text().splitlines() if "=" in line)
    socket = linked_fake_hub.request_result("rpc.host.capabilities", host_id=shared_linked_host.host_id)["local_unix_socket"]
    wanted = {"RELAY_RUN_ID": run_id, "RELAY_TOOL": "claude", "RELAY_HOSTD_SOCK": socket, "RELAY_CWD": str(workspace)}
    assert {name: seen.get(name) for name in wanted} == wanted


@pytest.mark.requirement("relay:runs:cwd", "relay:runs:bash-lc")
def test_a_run_is_a_login_shell_in_its_cwd_or_in_the_hosts_own(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start("pwd; shopt -q login_shell && echo login; [[ -t 0 && -t 1 ]] && echo terminal", workspace)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert linked_fake_hub.get_output(run_id).split() == [str(workspace), "login", "terminal"]
    without = linked_fake_hub.request_result("rpc.run.start", tool="x", cmd="pwd", cwd=None)["run_id"]
    linked_fake_hub.wait_for("run.exited", without, exit_code=0)
    assert linked_fake_hub.list_run_messages(without)[0]["data"]["cwd"] == linked_fake_hub.get_output(without).strip()


@pytest.mark.requirement("relay:runs:empty-cmd")
def test_an_empty_cmd_runs_the_tool(linked_fake_hub: FakeHub, workspace: Path) -> None:
    (workspace / "my tool").write_text("#!/bin/sh\necho it ran\n")
    (workspace / "my tool").chmod(0o755)
    run_id = linked_fake_hub.start("", workspace, tool=str(workspace / "my tool"))
    linked_fake_hub.wait_for("run.exited", run_id, exit_code=0)
    assert linked_fake_hub.get_output(run_id) == "it ran\r\n"
    assert linked_fake_hub.request_error("rpc.run.start", tool=" ", cmd="", cwd=str(workspace)) == "`cmd` and `tool` are empty"


@pytest.mark.requirement("relay:commands:signal-int", "relay:commands:signal-null")
def test_int_is_ctrl_c_and_null_is_term(linked_fake_hub: FakeHub, workspace: Path) -> None:
    script = "trap 'echo interrupted' INT; trap 'echo terminated; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    run_id = linked_fake_hub.start(script, workspace)
    linked_fake_hub.wait_for_output(run_id, "ready")
    assert linked_fake_hub.request_result("rpc.run.stop", run_id, signal="int") == {"signal": "int"}
    linked_fake_hub.wait_for_output(run_id, "interrupted")
    assert linked_fake_hub.request_result("rpc.run.stop", run_id, signal=None) == {"signal": "term"}
    linked_fake_hub.wait_for("run.exited", run_id, exit_code=3)
    assert "terminated" in linked_fake_hub.get_output(run_id)


# Prompts


@pytest.mark.requirement("relay:prompts:order", "relay:prompts:fields", "relay:prompts:shared-id", "relay:prompts:uuid")
def test_a_prompt_is_a_permission_requested_and_then_awaiting_input_with_the_same_id(
    linked_fake_hub: FakeHub, workspace: Path
) -> None:
    run_id = linked_fake_hub.start(ASK, workspace)
    waiting = linked_fake_hub.wait_for("run.awaiting_input", run_id)
    asked = linked_fake_hub.wait_for("run.permission_requested", run_id)
    assert asked["seq"] < waiting["seq"]
    request_id = UUID(asked["data"]["request_id"])
    assert str(request_id) == asked["data"]["request_id"] == waiting["data"]["request_id"]
    assert (request_id.variant, request_id.version) == (RFC_4122, 7)
    assert "op_tool" not in asked["data"], "a program's prompt is about no tool"
    assert (asked["data"]["approve_text"], asked["data"]["deny_text"]) == ("y\n", "n\n")
    assert asked["data"]["reason"] == waiting["data"]["reason"] == "permission"
    assert "Proceed?" in asked["data"]["prompt"]
    assert "Proceed?" in waiting["data"]["prompt"]
    assert "".join(linked_fake_hub.get_output(run_id)) == "Proceed? (y/n) ", (
        "what was put out before the prompt is told before it"
    )
    linked_fake_hub.send("run.stop", {"signal": "kill"}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)


@pytest.mark.requirement("relay:prompts:approve", "relay:prompts:once")
def test_approving_twice_types_the_approve_text_once(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start(ASK, workspace)
    request_id = linked_fake_hub.wait_for("run.awaiting_input", run_id)["data"]["request_id"]
    for _ in range(2):
        linked_fake_hub.send("run.permission.approve", {"request_id": request_id, "actor": "cli"}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id, exit_code=5)
    assert "got:y:" in linked_fake_hub.get_output(run_id)
    (typed,) = linked_fake_hub.list_run_messages(run_id, "run.input")
    digest = hashlib.sha256(b"y\n").hexdigest()
    assert typed["data"] == {"actor": "cli", "input_id": request_id, "text_redacted": "y\n", "text_sha256": digest}


@pytest.mark.requirement("relay:prompts:deny")
def test_denying_types_the_deny_text(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start(ASK, workspace)
    request_id = linked_fake_hub.wait_for("run.awaiting_input", run_id)["data"]["request_id"]
    linked_fake_hub.send("run.permission.deny", {"request_id": request_id}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert "got:n:" in linked_fake_hub.get_output(run_id)
    (typed,) = linked_fake_hub.list_run_messages(run_id, "run.input")
    assert (typed["data"]["input_id"], typed["data"]["text_redacted"]) == (request_id, "n\n")


PROMPTS = [
    "Proceed?",
    "Do you want to continue?",
    "Are you sure?",
    "Confirm deletion:",
    "Overwrite a.txt (y/n)",
    "Overwrite a.txt [y/N]",
    "Overwrite a.txt [Y/n]",
    "Allow this command to run?",
    "Grant permission to write?",
    "Approve this change?",
]


@pytest.mark.requirement("relay:prompts:recognised")
def test_the_usual_prompts_are_recognised(linked_fake_hub: FakeHub, workspace: Path) -> None:
    runs = {linked_fake_hub.start(f"printf '%s ' '{prompt}'; read x", workspace): prompt for prompt in PROMPTS}
    for run_id, prompt in runs.items():
        asked = linked_fake_hub.wait_for("run.permission_requested", run_id)
        assert prompt in asked["data"]["prompt"]
        linked_fake_hub.wait_for("run.awaiting_input", run_id, request_id=asked["data"]["request_id"])
    for run_id in runs:
        linked_fake_hub.send("run.stop", {"signal": "kill"}, run_id=run_id)
        linked_fake_hub.wait_for("run.exited", run_id)


@pytest.mark.requirement("relay:prompts:open")
@pytest.mark.parametrize(
    ("printed", "reason", "prompt"),
    [("Your name: ", "prompt", "Your name:"), (r"1) one\n2) two\nSelect an option: ", "choice", "Select an option:")],
    ids=["prompt", "choice"],
)
def test_a_prompt_without_yes_and_no_awaits_input_and_asks_for_no_permission(
    linked_fake_hub: FakeHub, workspace: Path, printed: str, reason: str, prompt: str
) -> None:
    run_id = linked_fake_hub.start(f"printf '{printed}'; read x; echo got:$x:", workspace)
    waiting = linked_fake_hub.wait_for("run.awaiting_input", run_id)
    assert waiting["data"] == {"reason": reason, "prompt": prompt}
    linked_fake_hub.send("run.send_input", {"input_id": f"open-{run_id}", "text": "1\n"}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert "got:1:" in linked_fake_hub.get_output(run_id)
    assert linked_fake_hub.list_run_messages(run_id, "run.permission_requested") == []


@pytest.mark.requirement("relay:prompts:press-enter")
def test_press_enter_to_continue_is_approved_by_enter(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start("printf 'Press enter to continue'; read x; echo went on", workspace)
    asked = linked_fake_hub.wait_for("run.permission_requested", run_id)
    assert asked["data"]["approve_text"] == "\n"
    linked_fake_hub.send("run.permission.approve", {"request_id": asked["data"]["request_id"]}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert "went on" in linked_fake_hub.get_output(run_id)


@pytest.mark.requirement("relay:faults:split-prompts", "relay:faults:coloured-prompts")
@pytest.mark.parametrize(
    "printed",
    [
        r"printf 'Proc'; sleep 0.2; printf 'eed? (y/'; sleep 0.2; printf 'n) '",
        r"printf '\033[1;33mPro\033[32mceed?\033[0m (\033[4my\033[0m/n) '",
    ],
    ids=["split", "coloured"],
)
def test_a_prompt_is_seen_in_pieces_and_in_colours(linked_fake_hub: FakeHub, workspace: Path, printed: str) -> None:
    run_id = linked_fake_hub.start(f"{printed}; read answer; echo got:$answer:", workspace)
    asked = linked_fake_hub.wait_for("run.permission_requested", run_id)
    assert "Proceed? (y/n)" in asked["data"]["prompt"]
    linked_fake_hub.send("run.permission.approve", {"request_id": asked["data"]["request_id"]}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert "got:y:" in linked_fake_hub.get_output(run_id)


# Input


@pytest.mark.requirement("relay:input:recorded", "relay:input:once", "relay:input:actor")
def test_input_is_written_and_recorded_once_for_its_id(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start("while read line; do echo got:$line:; [ $line = end ] && exit; done", workspace)
    linked_fake_hub.wait_for("run.ready", run_id)
    for input_id, text, actor in (("i-1", "né\n", "cli"), ("i-1", "né\n", "cli"), ("i-2", "end\n", "web")):
        linked_fake_hub.send("run.send_input", {"input_id": input_id, "text": text, "actor": actor}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert linked_fake_hub.get_output(run_id).count("got:né:") == 1
    recorded = [frame["data"] for frame in linked_fake_hub.list_run_messages(run_id, "run.input")]
    assert recorded == [
        {
            "actor": actor,
            "input_id": input_id,
            "text_redacted": text,
            "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
        for input_id, text, actor in (("i-1", "né\n", "cli"), ("i-2", "end\n", "web"))
    ]


@pytest.mark.requirement("relay:input:redacted", "relay:faults:input-in-log")
def test_a_secret_that_is_typed_is_recorded_redacted_with_the_hash_of_the_raw_text(
    linked_fake_hub: FakeHub, shared_linked_host: HostWithFakeHub, workspace: Path
) -> None:
    secret = "sk-ant-api03-" + "Ab3dEf6hIj9k" * 5
    run_id = linked_fake_hub.start("stty -echo; echo ready; read line; echo ${#line}", workspace)
    linked_fake_hub.wait_for_output(run_id, "ready")
    linked_fake_hub.send("run.send_input", {"input_id": "s", "text": f"{secret}\n"}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    (typed,) = linked_fake_hub.list_run_messages(run_id, "run.input")
    assert secret not in typed["data"]["text_redacted"]
    assert typed["data"]["text_sha256"] == hashlib.sha256(f"{secret}\n".encode()).hexdigest()
    assert str(len(secret)) in linked_fake_hub.get_output(run_id), "what was typed arrived as it was"
    assert secret not in shared_linked_host.daemon.log


@pytest.mark.requirement("relay:faults:greedy-redaction")
def test_uuids_and_paths_are_not_taken_for_secrets(linked_fake_hub: FakeHub, workspace: Path) -> None:
    harmless = f"/usr/share/a/rather/long/path/to/some/file.txt 123e4567-e89b-12d3-a456-426614174000 {'a' * 40} {workspace}"
    run_id = linked_fake_hub.start(f"echo '{harmless}'; read line", workspace)
    linked_fake_hub.wait_for_output(run_id, harmless)
    linked_fake_hub.send("run.send_input", {"input_id": "u", "text": f"{harmless}\n"}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    (typed,) = linked_fake_hub.list_run_messages(run_id, "run.input")
    assert typed["data"]["text_redacted"] == f"{harmless}\n"


@pytest.mark.requirement("relay:clients:carriage-return")
def test_a_carriage_return_ends_a_line_as_a_newline_does(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start("read a; echo got:$a:", workspace)
    linked_fake_hub.wait_for("run.ready", run_id)
    linked_fake_hub.send("run.send_input", {"input_id": "cr", "text": "typed\r"}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert "got:typed:" in linked_fake_hub.get_output(run_id)


@pytest.mark.requirement("relay:clients:newer-commands")
def test_keys_reach_the_terminal_and_a_new_size_the_program(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start("echo up; read a; stty size; exit", workspace)
    linked_fake_hub.wait_for_output(run_id, "up")
    linked_fake_hub.send("run.resize", {"cols": 91, "rows": 17}, run_id=run_id)
    linked_fake_hub.wait_for("run.resized", run_id, cols=91, rows=17)
    linked_fake_hub.send("run.send_stdin", {"text": "k\n"}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert "17 91" in linked_fake_hub.get_output(run_id)
    assert linked_fake_hub.list_run_messages(run_id, "run.input") == [], "keys are not lines of input"


# Stop


@pytest.mark.requirement("relay:stop:term", "relay:faults:orphans")
def test_stop_terminates_all_that_the_run_started(linked_fake_hub: FakeHub, workspace: Path) -> None:
    cmd = "trap 'echo told; exit 9' TERM; sleep 1000 & echo $! > child; (setsid sleep 1000 & echo $! > far); echo up; wait"
    run_id = linked_fake_hub.start(cmd, workspace)
    linked_fake_hub.wait_for_output(run_id, "up")
    child, far = int(wait_for_file(workspace / "child")), int(wait_for_file(workspace / "far"))
    linked_fake_hub.send("run.stop", {}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id)
    assert "told" in linked_fake_hub.get_output(run_id), "the default is `term`, which a program can hear"
    deadline = time.monotonic() + 15
    while is_alive(child) or is_alive(far):
        assert time.monotonic() < deadline, "orphans"


@pytest.mark.requirement("relay:stop:kill")
def test_stop_with_kill_ends_it_without_a_word(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start("trap 'echo heard' TERM; echo $$ > pid; echo up; while true; do sleep 0.02; done", workspace)
    linked_fake_hub.wait_for_output(run_id, "up")
    pid = int(wait_for_file(workspace / "pid"))
    linked_fake_hub.send("run.stop", {"signal": "kill"}, run_id=run_id)
    assert linked_fake_hub.wait_for("run.exited", run_id)["data"]["exit_code"] != 0
    assert "heard" not in linked_fake_hub.get_output(run_id)
    assert not is_alive(pid)


@pytest.mark.requirement("relay:commands:refused-by-host")
def test_a_command_that_the_host_does_not_carry_out_is_answered_with_an_error(linked_fake_hub: FakeHub, workspace: Path) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        ("run.send_input", {"input_id": "e-1", "text": "x"}, {"input_id": "e-1"}),
        ("run.stop", {}, {}),
        ("run.permission.approve", {"request_id": "e-2"}, {"request_id": "e-2"}),
    ]
    for type_, data, ids in cases:
        since = linked_fake_hub.forget()
        linked_fake_hub.send(type_, data, run_id="run_that_is_none")
        refusal = linked_fake_hub.wait_for("run.error", "run_that_is_none", since=since)
        assert refusal["data"] == {"command": type_, "error": "unknown run_id", **ids}
    run_id = linked_fake_hub.start("true", workspace)
    linked_fake_hub.wait_for("run.exited", run_id)
    linked_fake_hub.send("run.send_input", {"input_id": "late", "text": "x"}, run_id=run_id)
    assert linked_fake_hub.wait_for("run.error", run_id, input_id="late")["data"]["error"]
