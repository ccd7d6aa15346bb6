"""`tower exec` and `tower attach` at a real terminal and in a pipe: the program's own keys, output, window and exit code."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import SESSION, ScriptedDaemon
from tests.cli.terminal import TerminalDriver
from tests.cli.test_imports import DAEMON_PACKAGES

LEAVE = b"\x1d"
QUIT = b"\x1c"


def make_python_command(code: str) -> list[str]:
    return ["--", sys.executable, "-c", code]


def parse_session_id(terminal: TerminalDriver) -> str:
    """From what is said to who leaves."""
    return terminal.shown.split("`tower attach ")[1].split("`")[0]


# At a terminal


def test_what_is_typed_reaches_the_program_and_its_answer_comes_back(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(shared_command, "exec", *make_python_command("print('got', input('who? ').upper())"))
    terminal.wait_for("who? ")

    terminal.press("jürgen\r".encode())

    assert terminal.end() == 0, terminal.shown
    assert "got JÜRGEN" in terminal.shown


@pytest.mark.parametrize(("ending", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)])
def test_the_exit_code_is_the_program_s(shared_command: TowerCommand, ending: str, code: int) -> None:
    assert TerminalDriver(shared_command, "exec", "--", "sh", "-c", ending).end() == code
    assert shared_command("exec", "--", "sh", "-c", ending).code == code


def test_keys_with_a_meaning_for_terminals_are_the_program_s(shared_command: TowerCommand) -> None:
    code = """
import signal, sys
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
signal.signal(signal.SIGQUIT, lambda *_: (print("quit", flush=True), sys.exit(5)))
print("ready", flush=True)
while True: signal.pause()
"""
    terminal = TerminalDriver(shared_command, "exec", *make_python_command(code))
    terminal.wait_for("ready")

    terminal.press(b"\x03")
    terminal.wait_for("interrupted")
    terminal.press(QUIT)  # a single one

    assert terminal.end() == 5
    assert "quit" in terminal.shown


@pytest.mark.parametrize("keys", [LEAVE, QUIT + QUIT])
def test_leaving_keeps_the_program_running_and_says_how_to_come_back(shared_command: TowerCommand, keys: bytes) -> None:
    left = TerminalDriver(shared_command, "exec", *make_python_command("print('ready', flush=True); print('got', input())"))
    left.wait_for("ready")

    left.press(keys)

    assert left.end() == 0
    back = TerminalDriver(shared_command, "attach", parse_session_id(left))
    back.wait_for("ready")
    back.press(b"hello\r")
    assert back.end() == 0, back.shown
    assert "got hello" in back.shown


def test_coming_back_paints_a_full_screen_again_and_leaving_puts_the_terminal_right(shared_command: TowerCommand) -> None:
    (shared_command.folder / "poem.txt").write_text("".join(f"line {number}\n" for number in range(1, 500)))
    left = TerminalDriver(shared_command, "exec", "--", "less", "poem.txt", size=(60, 12), LESS="")
    left.wait_for("line 11")
    left.press(b"300g")
    left.wait_for("line 310")
    before = len(left.shown)
    left.press(LEAVE)
    assert left.end() == 0
    assert "\x1b[?1049l" in left.shown[before:]

    back = TerminalDriver(shared_command, "attach", parse_session_id(left), size=(60, 12))
    back.wait_for("line 310")
    back.press(b"q")

    assert back.end() == 0, back.shown
    assert (back.settings_after, left.settings_after) == (back.settings_before, left.settings_before)


def test_the_window_s_size_reaches_the_program_at_once_and_when_it_changes(shared_command: TowerCommand) -> None:
    code = """
import os, signal
def tell(*_): print("size", *os.get_terminal_size(0), flush=True)
signal.signal(signal.SIGWINCH, tell)
tell()
while True: signal.pause()
"""
    terminal = TerminalDriver(shared_command, "exec", *make_python_command(code), size=(91, 17))
    terminal.wait_for("size 91 17")

    terminal.resize(72, 33)
    terminal.wait_for("size 72 33")
    terminal.press(LEAVE)
    assert terminal.end() == 0

    other = TerminalDriver(shared_command, "attach", parse_session_id(terminal), size=(50, 20))
    other.wait_for("size 50 20")
    other.press(b"\x03")
    assert other.end() == 130


def test_who_only_looks_on_changes_nothing(shared_command: TowerCommand) -> None:
    code = "import os; print('ready', *os.get_terminal_size(0), flush=True); print('got', input())"
    owner = TerminalDriver(shared_command, "exec", *make_python_command(code), size=(80, 24))
    owner.wait_for("ready 80 24")
    session_id = shared_command("sessions", "--json").json[0]["sessionId"]

    watching = TerminalDriver(shared_command, "attach", session_id, "--read-only", size=(40, 10))
    watching.wait_for("ready")
    watching.press(b"not mine\r")
    watching.press(b"\x03")
    assert watching.end() == 0

    owner.press(b"mine\r")
    assert owner.end() == 0
    assert "got mine" in owner.shown
    assert "Terminal resized" not in shared_command("attach", session_id, "--no-follow", "--jsonl").stdout.decode()


def test_what_the_program_asked_of_one_terminal_is_not_asked_of_the_next(shared_command: TowerCommand) -> None:
    left = TerminalDriver(
        shared_command, "exec", *make_python_command(r"print('\x1b]4;1;?\x07\x1b[18tready', flush=True); print('got', input())")
    )
    left.wait_for("ready")
    assert "\x1b]4;1;?\x07\x1b[18t" in left.shown
    left.press(LEAVE)
    left.end()

    back = TerminalDriver(shared_command, "attach", parse_session_id(left))
    back.wait_for("ready")
    assert "\x1b]4" not in back.shown
    assert "\x1b[18t" not in back.shown
    back.press(b"x\r")
    back.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_gives_the_terminal_back_and_leaves_the_program_running(shared_command: TowerCommand, number: int) -> None:
    terminal = TerminalDriver(shared_command, "exec", *make_python_command("print('ready', flush=True); print('got', input())"))
    terminal.wait_for("ready")
    assert terminal.is_raw

    terminal.process.send_signal(number)

    assert terminal.end() == 2
    assert terminal.settings_after == terminal.settings_before
    assert shared_command("send", parse_session_id(terminal), "typed").code == 0
    assert b"got typed" in shared_command("attach", parse_session_id(terminal)).stdout


def test_a_daemon_that_is_killed_gives_the_terminal_back(tower_command: TowerCommand) -> None:
    terminal = TerminalDriver(tower_command, "exec", *make_python_command("print('ready', flush=True); input()"))
    terminal.wait_for("ready")

    os.kill(tower_command.endpoints["pid"], signal.SIGKILL)
    tower_command("sessions")  # starts another one, which knows how the first one's run ended

    assert terminal.end() == 1, terminal.shown
    assert terminal.settings_after == terminal.settings_before
    assert "the connection to the daemon was lost" in terminal.shown


def test_an_answer_that_is_no_protocol_gives_the_terminal_back(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["start_session"] = {"sessionId": "sess_1", "state": "running", "attachToken": "att_1"}
    scripted_daemon.answers["attach_session"] = {"nonsense": True}
    scripted_daemon.answers["terminal_resize"] = {"accepted": True}

    terminal = TerminalDriver(tower_command, "exec", "--", "true")

    assert terminal.end() == 1
    assert "not push.runtime.v1" in terminal.shown
    assert terminal.settings_after == terminal.settings_before


# Without one


def test_a_pipe_is_passed_on_byte_for_byte_and_so_is_the_output(shared_command: TowerCommand) -> None:
    code = """
import sys, termios, tty
tty.setraw(0)
sys.stdout.buffer.write(b"ready"); sys.stdout.flush()
got = b""
while b"end" not in got: got += sys.stdin.buffer.raw.read(100)
sys.stdout.buffer.write(b"[" + got.partition(b"end")[0] + b"]"); sys.stdout.flush()
"""
    sent = "grüße\n\ttab\r\x03\x04\x1c\x1d 🎈 end".encode()
    process = shared_command.start("exec", *make_python_command(code), stdin=subprocess.PIPE)
    assert process.stdout.read(5) == b"ready"
    for byte in sent:  # a character may come in two halves
        process.stdin.write(bytes([byte]))
        process.stdin.flush()

    out, err = process.communicate(timeout=60)

    assert out == b"[" + sent.removesuffix(b"end") + b"]"
    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("sent", [b"", b"one\n", b"one\ntwo"])
def test_the_end_of_stdin_is_the_end_of_the_program_s_input(shared_command: TowerCommand, sent: bytes) -> None:
    code = "import sys; print('read', sys.stdin.buffer.read())"

    assert f"read {sent!r}".encode() in shared_command("exec", *make_python_command(code), stdin=sent).stdout


def test_a_large_input_arrives_whole_and_in_order(shared_command: TowerCommand) -> None:
    code = "import hashlib, os, sys; os.system('stty -echo'); print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    sent = b"".join(b"line %d\n" % number for number in range(30_000))

    ended = shared_command("exec", *make_python_command(code), stdin=sent)

    assert hashlib.sha256(sent).hexdigest().encode() in ended.stdout, ended.stderr


def test_a_file_as_stdin_is_read_to_its_end(shared_command: TowerCommand) -> None:
    (shared_command.folder / "words.txt").write_bytes(b"some words\n")
    with (shared_command.folder / "words.txt").open("rb") as words:
        process = shared_command.start(
            "exec", *make_python_command("import sys; print('read', sys.stdin.read().split())"), stdin=words
        )
        assert b"read ['some', 'words']" in process.communicate(timeout=60)[0]


def test_somebody_else_s_program_does_not_end_with_our_input(shared_command: TowerCommand) -> None:
    session_id = (
        shared_command("exec", "--detach", *make_python_command("print('got', input()); print('and', input())"))
        .stdout.decode()
        .strip()
    )
    watching = shared_command.start("attach", session_id)
    shared_command("send", session_id, "one")
    shared_command("send", session_id, "two")

    out, _ = watching.communicate(timeout=60)

    assert b"got one" in out
    assert b"and two" in out
    assert watching.returncode == 0


def test_an_input_that_was_dropped_is_not_cut_short_in_silence(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers |= {
        "start_session": {"sessionId": SESSION, "state": "running", "attachToken": "att_1"},
        "terminal_input": {"accepted": True},
        "cancel_run": {"accepted": True},
    }
    scripted_daemon.add_event("warning", {"code": "INPUT_DROPPED", "message": "The program does not read"})

    ended = tower_command("exec", "--", "cat", stdin=b"text")

    assert ended.code == 1
    assert "some of it was dropped; hint: " in ended.stderr
    assert len(scripted_daemon.list_requests("cancel_run")) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_without_a_terminal_ends_the_program_too(shared_command: TowerCommand, processes_with: Any, number: int) -> None:
    mark = f"mark_{os.getpid()}_{number}"
    process = shared_command.start(
        "exec", *make_python_command(f"import time; print('ready', flush=True); time.sleep(600); {mark!r}")
    )
    assert process.stdout.readline() == b"ready\r\n"

    process.send_signal(number)

    assert process.wait(timeout=60) == 2
    assert processes_with(mark) == []


def test_a_reader_that_leaves_ends_the_program(shared_command: TowerCommand, processes_with: Any) -> None:
    process = shared_command.start("exec", "--", "sh", "-c", f"while :; do echo {shared_command.folder}; done")
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(timeout=60) == 141
    session_id = shared_command("sessions", "--json").json[0]["sessionId"]
    shared_command("attach", session_id)  # to its end
    assert processes_with(str(shared_command.folder)) == []


def test_what_cannot_be_started_is_said_with_the_code_that_shells_have_for_it(shared_command: TowerCommand) -> None:
    ended = shared_command("exec", "--", "no-such-program")

    assert (ended.code, ended.stdout) == (127, b"")
    assert "there is no program `no-such-program`" in ended.stderr


def test_what_cannot_be_started_in_the_background_fails_too_and_leaves_no_session(shared_command: TowerCommand) -> None:
    before = shared_command("sessions", "--json").json

    ended = shared_command("exec", "--detach", "--", "no-such-program")

    assert (ended.code, ended.stdout) == (127, b"")
    assert ended.stderr.count("\n") == 1
    assert "there is no program `no-such-program` that can be run here; hint: see whether it is installed" in ended.stderr
    assert shared_command("sessions", "--json").json == before


def test_json_is_how_it_ended_and_the_output_goes_elsewhere(shared_command: TowerCommand) -> None:
    ended = shared_command("exec", "--json", "--", "sh", "-c", "echo shown; exit 3")

    assert ended.code == 3
    assert (ended.json["ended"], ended.json["outcome"], ended.json["exitCode"]) == (True, "failed", 3)
    assert "shown" in ended.stderr


# Later, and beside it


def test_detached_it_is_listed_typed_to_and_shown_to_its_end(shared_command: TowerCommand) -> None:
    told = shared_command(
        "exec", "--detach", "--json", "--name", "greeter", "--tool", "claude", *make_python_command("print('hi', input())")
    )
    session_id = told.json["sessionId"]

    listed = next(session for session in shared_command("sessions", "--json").json if session["sessionId"] == session_id)
    assert (listed["terminal"]["tool"], listed["terminal"]["title"]) == ("claude", "greeter")
    assert "claude: greeter" in shared_command("sessions").stdout.decode()
    assert "program:" in shared_command("show", session_id).stdout.decode()
    assert shared_command("send", session_id, "there").code == 0

    attached = shared_command("attach", session_id)
    assert (attached.code, b"hi there" in attached.stdout) == (0, True)
    assert shared_command("attach", session_id).stdout == attached.stdout, "also when it is long over"


def test_what_a_listed_program_waits_for_and_where_it_runs_is_shown(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    listing = {"sessionId": SESSION, "tool": "codex", "title": "codex fix it", "exitCode": None}
    scripted_daemon.answers["list_terminals"] = {"terminals": [{**listing, "waitsFor": "permission", "host": "host_1"}]}

    assert tower_command("sessions").stdout.decode().rstrip().endswith("/w  codex fix it on host_1 (waits: permission)")


def test_an_ended_program_s_exit_code_is_that_of_attaching_to_it(shared_command: TowerCommand) -> None:
    session_id = shared_command("exec", "--json", "--", "sh", "-c", "echo done; exit 9").json["sessionId"]

    attached = shared_command("attach", session_id)

    assert (attached.code, attached.stdout) == (9, b"done\r\n")
    assert shared_command("attach", session_id, "--from", "100000").code == 9


def test_cancel_with_force_kills_a_program_that_will_not_end(shared_command: TowerCommand) -> None:
    code = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 15)]; print('ready', flush=True); time.sleep(600)"
    process = shared_command.start("exec", *make_python_command(code))
    process.stdout.readline()
    session_id = shared_command("sessions", "--json").json[0]["sessionId"]

    assert shared_command("cancel", session_id, "--force").code == 0

    assert process.wait(timeout=60) == 137
    assert b"= cancelled" in process.stderr.read()


def test_an_agent_s_session_cannot_be_typed_into_and_is_attached_to_as_before(shared_command: TowerCommand) -> None:
    shared_command("run", "--headless", "say: hello")
    session_id = shared_command("sessions", "--json").json[0]["sessionId"]

    shown = shared_command("attach", session_id, "--no-follow", "--read-only").stdout

    assert b"hello" in shown
    assert "terminal" not in next(s for s in shared_command("sessions", "--json").json if s["sessionId"] == session_id)


def test_the_events_of_a_program_are_shown_as_lines_where_they_are_asked_for(shared_command: TowerCommand) -> None:
    session_id = shared_command("exec", "--json", "--", "echo", "visible").json["sessionId"]

    shown = shared_command("attach", session_id, "--no-follow").stdout.decode()
    events = shared_command("attach", session_id, "--no-follow", "--json").json

    assert "visible" in shown
    assert "= success" in shown
    assert [event["type"] for event in events][-1] == "run_complete"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument"),
        (("--cwd", "/no/such/folder", "--", "true"), "does not exist"),
        (("--", b"\xff"), "is not UTF-8"),
        (("--name", " ", "--", "true"), "it is empty"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_starts(shared_command: TowerCommand, arguments: Any, said: str) -> None:
    ended = shared_command("exec", *arguments)

    assert ended.code == 64
    assert said in ended.stderr


def test_flags_behind_the_program_are_its_own(shared_command: TowerCommand) -> None:
    assert shared_command("exec", "echo", "--json", "--detach").stdout == b"--json --detach\r\n"


def test_exec_loads_nothing_of_the_daemon_and_no_emulator(shared_command: TowerCommand) -> None:
    probe = """
import sys
from switchtower.cli.main import main
try:
    main(["exec", "--", "true"])
except SystemExit as end:
    assert end.code == 0
print(",".join(sys.modules), file=sys.stderr)
"""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", probe],
        capture_output=True,
        text=True,
        env=shared_command.environment,
        cwd=shared_command.folder,
        timeout=30,
    )
    loaded = set(ended.stderr.splitlines()[-1].split(","))

    assert "switchtower.cli.terminal.attachment" in loaded
    assert loaded.isdisjoint({"pyte", "starlette", "uvicorn", "uvloop", "sqlite3", "jwt", "argon2", "pydantic"})
    ours = tuple(f"switchtower.{package}" for package in ("engines", "stores", "tools", "models", "protocols.relay"))
    assert not {name for name in loaded if name.startswith((*DAEMON_PACKAGES, *ours))}


def test_a_program_knows_the_folder_that_was_asked_for(shared_command: TowerCommand, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()

    ended = shared_command("exec", "--cwd", "inner", *make_python_command("import os, json; print(json.dumps(os.getcwd()))"))

    assert json.loads(ended.stdout) == str(tmp_path / "inner")


# Deciding for a program


def test_deny_refuses_one_thing_and_the_program_continues(shared_command: TowerCommand) -> None:
    code = "print('got', input('Delete a? (y/n) ')); print('and', input('Delete b? (y/n) '))"
    terminal = TerminalDriver(shared_command, "exec", *make_python_command(code))
    terminal.wait_for("Delete a? (y/n) ")
    approval_id = wait_for_approval(shared_command, "Delete a?")
    assert shared_command("deny", approval_id).code == 0
    terminal.wait_for("Delete b? (y/n) ")
    approval_id = wait_for_approval(shared_command, "Delete b?")
    assert shared_command("approve", approval_id).code == 0
    assert terminal.end() == 0
    assert "got n" in terminal.shown
    assert "and y" in terminal.shown


def test_deny_with_stop_ends_the_program(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(
        shared_command, "exec", *make_python_command("input('Delete a? (y/n) '); import time; time.sleep(1000)")
    )
    terminal.wait_for("Delete a? (y/n) ")
    assert shared_command("deny", wait_for_approval(shared_command, "Delete a?"), "--stop").code == 0
    assert terminal.end() != 0


def wait_for_approval(shared: TowerCommand, title: str) -> str:
    """The id of the question, once it is raised."""
    for _ in range(200):
        for one in shared("inbox", "--json").json:
            if title in one["approval"]["title"]:
                return str(one["approval"]["approvalId"])
    raise AssertionError(f"{title} was not asked")
