"""The agent's features through the real daemon, as somebody at a command line has them."""

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand, TowerResult
from tests.cli.terminal import TerminalDriver


def run_git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(shared_command: TowerCommand) -> Path:
    folder: Path = shared_command.folder
    (folder / "kept.txt").write_text("kept\n")
    run_git(folder, "init", "-b", "trunk")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-m", "first")
    return folder


def parse_session_id(ended: TowerResult) -> str:
    """The session that a command without `--json` told of."""
    session_id: str = ended.stderr.split("session ", 1)[1].split()[0]
    return session_id


def run_unattended(shared: TowerCommand, text: str) -> str:
    """Runs this without asking, and returns the session."""
    ended = shared("run", "--headless", "--json", "--policy", "auto", text)
    assert ended.code == 0, ended.stderr
    session_id: str = ended.json["sessionId"]
    return session_id


# Who answers


def test_the_run_shows_which_model_serves(shared_command: TowerCommand) -> None:
    assert "model demo, policy ask, sandbox local\n" in shared_command("run", "--headless", "say: hi").stderr


def test_what_the_run_took_is_told_once_at_its_end(shared_command: TowerCommand) -> None:
    (shared_command.folder / "README.md").write_text("Read me\n")

    lines = shared_command("run", "--headless", "read README.md").stderr.splitlines()

    told = [line for line in lines if " tokens in, " in line]
    assert len(told) == 1
    assert told[0].endswith("(demo demo)")
    assert lines[-2:] == [told[0], lines[-1]]
    assert lines[-1].startswith("= success")


def test_models_lists_the_demo_as_usable_and_default_and_says_why_the_others_are_not(shared_command: TowerCommand) -> None:
    listed = shared_command("models", "--json").json

    assert [(model["name"], model["isDefault"]) for model in listed if model["usable"]] == [("demo", True)]
    assert all(model["reason"] for model in listed if not model["usable"])
    assert shared_command("models").stdout.decode().startswith("*  demo ")


# What it may do


def test_read_only_changes_nothing_and_asks_nobody(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "--policy", "read-only", "--approve", "always", "write notes.txt: x")

    assert not (shared_command.folder / "notes.txt").exists()
    assert "? " not in ended.stderr
    assert "read-only" in ended.stderr


def test_auto_writes_in_the_workspace_without_asking(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "--policy", "auto", "write notes.txt: x")

    assert ended.code == 0, ended.stderr
    assert (shared_command.folder / "notes.txt").exists()
    assert "policy auto" in ended.stderr


def test_yolo_runs_everything_and_is_warned_of_in_one_line(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "--policy", "yolo", "run: echo it ran > here.txt")

    assert ended.code == 0, ended.stderr
    assert (shared_command.folder / "here.txt").read_text() == "it ran\n"
    assert [line for line in ended.stderr.splitlines() if line.startswith("! ")] == [
        "! POLICY_YOLO: From here on nothing is asked: the session's policy is `yolo`"
    ]


@pytest.mark.parametrize(
    ("limits", "why"),
    [(["--max-turns", "1"], "1 turns"), (["--max-tokens", "1"], "tokens"), (["--max-minutes", "1e-9"], "minutes")],
)
def test_a_limit_ends_the_run_as_failed_and_says_which(shared_command: TowerCommand, limits: list[str], why: str) -> None:
    (shared_command.folder / "README.md").write_text("Read me\n")

    ended = shared_command("run", "--headless", "--json", *limits, "read README.md")

    assert (ended.code, ended.json["outcome"]) == (1, "failed")
    assert "budget" in ended.json["summary"]
    assert why in ended.json["summary"]


def test_a_sandbox_that_cannot_be_had_is_refused_with_a_remedy(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "--sandbox", "modal", "say: hi")

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.startswith("tower: SANDBOX_UNAVAILABLE: ")
    assert "hint: " in ended.stderr


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed here")
def test_in_the_sandbox_the_workspace_is_writable_and_the_rest_is_not(shared_command: TowerCommand) -> None:
    outside = shared_command.home / "outside.txt"

    command = f"run: echo in > inside.txt; echo out > {outside} || echo held back"
    ended = shared_command("run", "--headless", "--sandbox", "bubblewrap", "--approve", "always", command)

    assert ended.code == 0, ended.stderr
    assert "sandbox bubblewrap" in ended.stderr
    assert (shared_command.folder / "inside.txt").read_text() == "in\n"
    assert not outside.exists()
    assert "held back" in ended.stderr


def test_a_worktree_is_told_of_and_leaves_the_folder_alone(shared_command: TowerCommand, repository: Path) -> None:
    ended = shared_command("run", "--headless", "--worktree", "--policy", "auto", "write notes.txt: x")

    assert ended.code == 0, ended.stderr
    [told] = [line for line in ended.stderr.splitlines() if line.startswith("worktree ")]
    place, branch = told.removeprefix("worktree ").removesuffix(")").split(" (branch ")
    assert (Path(place) / "notes.txt").exists()
    assert run_git(Path(place), "branch", "--show-current").strip() == branch
    assert not (repository / "notes.txt").exists()
    assert run_git(repository, "branch", "--show-current") == "trunk\n"
    assert f"a worktree of {repository}" in shared_command("show", parse_session_id(ended)).stdout.decode()


# What is asked


@pytest.fixture
def start_waiting_run(shared_command: TowerCommand, line_with: Any) -> Any:
    """Sends this to a session, and returns its id when it waits for a decision."""

    def start(text: str) -> str:
        session_id: str = shared_command("run", "--headless", "--json", "say: hello").json["sessionId"]
        assert shared_command("send", session_id, text).code == 0
        watch(shared_command, session_id, line_with, "approval_required")
        return session_id

    return start


def watch(shared: TowerCommand, session_id: str, line_with: Any, text: str, *, from_seq: int = 0) -> dict[str, Any]:
    watcher = shared.start("attach", session_id, "--jsonl", "--from", str(from_seq))
    event: dict[str, Any] = json.loads(line_with(watcher, text, of="stdout"))
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=60)
    return event


def read_head(shared: TowerCommand, session_id: str) -> int:
    seq: int = shared("show", session_id, "--json").json["lastSeq"]
    return seq


def test_always_makes_a_rule_that_is_shown_and_that_holds(
    shared_command: TowerCommand, start_waiting_run: Any, line_with: Any
) -> None:
    session_id = start_waiting_run("run: echo ruled")
    seq = read_head(shared_command, session_id)

    approved = shared_command("approve", session_id, "--always")

    assert approved.code == 0, approved.stderr
    [told] = [line for line in approved.stderr.splitlines() if line.startswith("allowed for the rest of this session: ")]
    rule = told.removeprefix("allowed for the rest of this session: ")
    assert watch(shared_command, session_id, line_with, "run_complete", from_seq=seq)["payload"]["outcome"] == "success"
    again = shared_command("send", session_id, "run: echo ruled", "--wait")
    assert again.code == 0
    assert "? " not in again.stderr
    assert "ruled\n" in again.stderr
    [kept] = shared_command("show", session_id, "--json").json["rules"]
    assert kept["effect"] == "allow"
    assert kept["command"] in rule
    assert "rules:" in shared_command("show", session_id).stdout.decode()


def test_what_is_destructive_has_no_always(shared_command: TowerCommand, start_waiting_run: Any) -> None:
    (shared_command.folder / "build").mkdir()
    session_id = start_waiting_run("run: rm -r build")

    refused = shared_command("approve", session_id, "--always")

    assert refused.code == 1
    assert "asked about every time" in refused.stderr
    assert (shared_command.folder / "build").exists()
    assert shared_command("deny", session_id).code == 0


def test_the_terminal_shows_the_diff_of_what_will_be_written(shared_command: TowerCommand) -> None:
    (shared_command.folder / "notes.txt").write_text("old line\n")
    terminal = TerminalDriver(shared_command, "run", "write notes.txt: new line", NO_COLOR="1")
    terminal.wait_for("approve? [y/a/n/D]")

    assert "  | -old line\r\n  | +new line\r\n" in terminal.shown
    assert "  reason: " in terminal.shown
    terminal.type("y")

    assert terminal.end() == 0
    assert (shared_command.folder / "notes.txt").read_text().startswith("new line")


def test_a_no_at_the_terminal_is_told_to_the_model_which_goes_on(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(shared_command, "run", "write notes.txt: x\nsay: still here", NO_COLOR="1")
    terminal.wait_for("approve? [y/a/n/D]")

    terminal.type("n write it elsewhere")

    assert terminal.end() == 0
    assert "denied: write it elsewhere" in terminal.shown
    assert "still here" in terminal.shown
    assert not (shared_command.folder / "notes.txt").exists()


@pytest.mark.parametrize("rule", ["write", "edit_file", "sandbox_edit_file:*.txt"])
def test_an_edit_is_a_write_to_the_rules_of_a_headless_run(shared_command: TowerCommand, rule: str) -> None:
    (shared_command.folder / "notes.txt").write_text("old\n")

    ended = shared_command("run", "--headless", "edit notes.txt: old => new", "--approve", rule)

    assert ended.code == 0, ended.stderr
    assert (shared_command.folder / "notes.txt").read_text() == "new\n"


@pytest.mark.parametrize(("rule", "code"), [("commit", 0), ("commit:second*", 0), ("write", 3), ("commit:third*", 3)])
def test_a_commit_has_a_kind_of_its_own(shared_command: TowerCommand, repository: Path, rule: str, code: int) -> None:
    (repository / "kept.txt").write_text("changed\n")
    run_git(repository, "add", "kept.txt")
    for setting in ("user.name=Ada", "user.email=ada@example.org", "commit.gpgsign=false"):
        run_git(repository, "config", *setting.split("="))

    ended = shared_command("run", "--headless", "commit: second thoughts", "--approve", rule)

    assert ended.code == code, ended.stderr
    assert run_git(repository, "log", "--format=%s").splitlines()[0] == ("second thoughts" if code == 0 else "first")


# Messages into a run


def test_a_steering_message_waits_in_the_queue_until_the_model_takes_it_up(
    shared_command: TowerCommand, start_waiting_run: Any, line_with: Any
) -> None:
    session_id = start_waiting_run("write notes.txt: x")
    seq = read_head(shared_command, session_id)

    steered = shared_command("send", session_id, "say: on the way", "--steer")
    later = shared_command("send", session_id, "say: afterwards", "--follow-up")

    assert (steered.code, later.code) == (0, 0)
    queue = shared_command("show", session_id, "--json").json["queue"]
    assert [(queued["messageId"], queued["text"], queued["delivery"]) for queued in queue] == [
        (steered.stdout.decode().strip(), "say: on the way", "steer"),
        (later.stdout.decode().strip(), "say: afterwards", "follow_up"),
    ]
    assert "queue:" in shared_command("show", session_id).stdout.decode()

    assert shared_command("approve", session_id).code == 0
    watch(shared_command, session_id, line_with, "Message delivered", from_seq=seq)
    watch(shared_command, session_id, line_with, '"text":"afterwards"', from_seq=seq)
    assert shared_command("show", session_id, "--json").json["queue"] == []


def test_a_steering_message_without_a_run_starts_one(shared_command: TowerCommand, line_with: Any) -> None:
    session_id = shared_command("run", "--headless", "--json", "say: hello").json["sessionId"]
    seq = read_head(shared_command, session_id)

    ended = shared_command("send", session_id, "say: late", "--steer")

    assert ended.stdout.startswith(b"run_")
    assert watch(shared_command, session_id, line_with, "run_complete", from_seq=seq)["runId"] == ended.stdout.decode().strip()


def test_configure_changes_the_next_run(shared_command: TowerCommand) -> None:
    session_id = shared_command("run", "--headless", "--json", "say: hello").json["sessionId"]

    assert shared_command("configure", session_id, "--policy", "auto", "--title", "Notes").code == 0

    about = shared_command("show", session_id, "--json").json
    assert (about["policy"], about["title"]) == ("auto", "Notes")
    assert shared_command("send", session_id, "write notes.txt: x", "--wait").code == 0
    assert (shared_command.folder / "notes.txt").exists()


def test_configuring_a_provider_that_is_not_there_changes_nothing(shared_command: TowerCommand) -> None:
    session_id = shared_command("run", "--headless", "--json", "say: hello").json["sessionId"]

    ended = shared_command("configure", session_id, "--provider", "nonesuch")

    assert ended.code == 1
    assert ended.stderr.startswith("tower: PROVIDER_NOT_CONFIGURED: ")
    assert shared_command("show", session_id, "--json").json["provider"] == "demo"


# Changes to the folder


def test_undo_and_redo_and_diff_tell_what_changed(shared_command: TowerCommand, repository: Path) -> None:
    session_id = run_unattended(shared_command, "write notes.txt: some text\nwrite kept.txt: other")
    after = (repository / "kept.txt").read_text()

    diff = shared_command("diff", session_id)
    undone = shared_command("undo", session_id)

    assert b"+++ b/notes.txt" in diff.stdout
    assert b"-kept\n" in diff.stdout
    assert undone.code == 0, undone.stderr
    assert undone.stdout.startswith(b"undo of run_")
    assert undone.stdout.rstrip().endswith(b": kept.txt, notes.txt")
    assert (repository / "kept.txt").read_text() == "kept\n"
    assert not (repository / "notes.txt").exists()
    assert run_git(repository, "status", "--porcelain") == ""
    assert shared_command("diff", session_id).stdout == b""

    assert shared_command("undo", session_id, "--redo").code == 0
    assert (repository / "kept.txt").read_text() == after
    assert shared_command("undo", session_id, "--redo").code == 1, "there is no undo left to take back"


def test_a_diff_can_be_applied_where_it_came_from(shared_command: TowerCommand, repository: Path) -> None:
    session_id = run_unattended(shared_command, "write kept.txt: other")
    diff = shared_command("diff", session_id).stdout
    assert shared_command("undo", session_id).code == 0

    subprocess.run(["git", "apply", "-"], cwd=repository, input=diff, check=True, timeout=60)

    assert (repository / "kept.txt").read_text().startswith("other")


def test_the_diff_of_one_run_is_that_run_s_alone(shared_command: TowerCommand, repository: Path) -> None:
    session_id = run_unattended(shared_command, "write first.txt: x")
    run_id = shared_command("attach", session_id, "--jsonl", "--no-follow").events[-1]["runId"]
    assert shared_command("send", session_id, "write second.txt: x", "--wait").code == 0

    one, all_of_them = shared_command("diff", session_id, "--run", run_id), shared_command("diff", session_id)

    assert b"first.txt" in one.stdout
    assert b"second.txt" not in one.stdout
    assert b"first.txt" in all_of_them.stdout
    assert b"second.txt" in all_of_them.stdout
    assert shared_command("diff", session_id, "--run", "run_nonesuch").code == 1


def test_a_file_changed_since_is_left_alone_and_the_hint_does_what_it_says(
    shared_command: TowerCommand, repository: Path
) -> None:
    session_id = run_unattended(shared_command, "write notes.txt: x\nwrite kept.txt: other")
    (repository / "notes.txt").write_text("somebody else's\n")

    undone = shared_command("undo", session_id)

    assert undone.code == 0
    assert undone.stdout.rstrip().endswith(b": kept.txt; left alone: notes.txt")
    assert (repository / "notes.txt").read_text() == "somebody else's\n"
    assert (repository / "kept.txt").read_text() == "kept\n"

    hint = undone.stderr.split("hint: `", 1)[1].split("`")[0]
    for command in hint.split(" && "):
        assert shared_command(*command.split()[1:]).code == 0
    assert not (repository / "notes.txt").exists()


def test_undo_needs_no_repository(shared_command: TowerCommand) -> None:
    session_id = run_unattended(shared_command, "write notes.txt: x")

    assert shared_command("undo", session_id).code == 0
    assert not (shared_command.folder / "notes.txt").exists()


def test_nothing_to_undo_is_said_in_one_line(shared_command: TowerCommand) -> None:
    session_id = shared_command("run", "--headless", "--json", "say: hello").json["sessionId"]

    ended = shared_command("undo", session_id)

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.count("\n") == 1


# The conversation


def test_a_short_conversation_is_not_compacted_and_that_is_a_failure(shared_command: TowerCommand) -> None:
    session_id = shared_command("run", "--headless", "--json", "say: hello").json["sessionId"]

    ended = shared_command("compact", session_id)

    assert (ended.code, ended.stdout) == (1, b"")
    assert "nothing to summarise yet" in ended.stderr


def test_a_long_conversation_is_compacted_and_goes_on(shared_command: TowerCommand) -> None:
    session_id = shared_command("run", "--headless", "--json", "count 30000").json["sessionId"]
    before = shared_command("show", session_id, "--json").json["contextTokens"]

    ended = shared_command("compact", session_id, "keep the last number")

    assert ended.code == 0, ended.stderr
    assert " tokens became about " in ended.stdout.decode()
    assert shared_command("show", session_id, "--json").json["contextTokens"] < before / 2
    assert shared_command("send", session_id, "say: on it goes", "--wait").stdout == b"on it goes\n"


def test_skills_prompts_and_extensions_are_listed_and_used_as_slash_commands(shared_command: TowerCommand) -> None:
    prompts = shared_command.folder / ".tower/prompts"
    prompts.mkdir(parents=True)
    (prompts / "echo.md").write_text("---\ndescription: Says it\n---\nsay: $ARGUMENTS\n")

    listed = shared_command("skills", "--json").json

    assert [(offer["name"], offer["kind"], offer["description"], offer["origin"]) for offer in listed] == [
        ("echo", "prompt", "Says it", "workspace"),
        ("brief", "extension", "Answer a few questions and have them made into a task", "plugin"),
        ("review", "extension", "Review uncommitted changes, the last commit or the branch", "plugin"),
    ]
    assert shared_command("run", "--headless", "/echo hi there").stdout == b"hi there\n"


# What tools put out


def test_a_command_s_output_goes_to_stderr_in_whole_and_once(shared_command: TowerCommand) -> None:
    command = "run: echo begin; sleep 0.6; printf mid; sleep 0.6; echo dle; echo end"

    ended = shared_command("run", "--headless", "--approve", "always", command)

    lines = ended.stderr.splitlines()
    at = lines.index("begin")
    assert "".join(lines[at : lines.index("end") + 1]) == "beginmiddleend"
    assert lines.count("end") == 1


def test_a_command_s_output_appears_while_it_still_runs(shared_command: TowerCommand, line_with: Any) -> None:
    go = shared_command.folder / "go"
    command = f"run: echo waiting for it; while [ ! -e {go} ]; do sleep 0.05; done; echo seen"
    process = shared_command.start("run", "--headless", "--approve", "always", command)

    line_with(process, "approved by")  # what comes before names the command, and is not its output
    line_with(process, "waiting for it")
    go.touch()
    line_with(process, "seen")

    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_program_s_colours_and_returns_do_not_reach_the_terminal(shared_command: TowerCommand) -> None:
    command = r"run: printf '\033[31mred\033[0m one\rtwo\n\033]0;owned\007'"
    terminal = TerminalDriver(shared_command, "run", "--headless", "--approve", "always", command, NO_COLOR="1")

    assert terminal.end() == 0
    assert "red one\r\ntwo\r\n" in terminal.shown
    assert "\x1b" not in terminal.shown
    assert "\x07" not in terminal.shown
