"""`tower run` where nobody watches: reports that are there however it ends, and runs in a session that is there already."""

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.cli.conftest import TowerCommand


def list_cases(report: Path) -> dict[str, list[str]]:
    suite = ElementTree.fromstring(report.read_bytes())[0]
    return {case.attrib["name"]: [child.tag for child in case] for case in suite.iter("testcase")}


def test_a_junit_report_names_the_run_and_each_criterion(shared_command: TowerCommand) -> None:
    checks = ["--accept", "holds=true", "--accept", r"fails=printf 'why \033[31m<&\001'; exit 7"]
    ended = shared_command("run", "--headless", "say: done", *checks, "--junit", "out/report.xml")

    report = shared_command.folder / "out/report.xml"
    assert ended.code == 4
    assert list_cases(report) == {"run": ["system-out"], "holds": [], "fails": ["failure"]}
    failure = ElementTree.fromstring(report.read_bytes()).find(".//failure")
    assert failure is not None
    assert failure.text == "why <&\\x01"
    assert stat.S_IMODE(report.stat().st_mode) == 0o666 & ~get_umask()
    assert list(report.parent.iterdir()) == [report], "nothing half-written is left"


def get_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_report_of_a_run_that_was_denied_says_so(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "write a.txt: x", "--accept", "a=true", "--junit", "report.xml")

    assert ended.code == 3
    assert list_cases(shared_command.folder / "report.xml") == {"run": ["failure"], "a": ["skipped"]}


def test_the_report_of_a_run_that_could_not_begin_says_why(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "x", "--provider", "nonesuch", "--accept", "a=true", "--junit", "report.xml")

    assert ended.code == 1
    assert list_cases(shared_command.folder / "report.xml") == {"run": ["failure"], "a": ["skipped"]}
    assert b"PROVIDER_NOT_CONFIGURED" in (shared_command.folder / "report.xml").read_bytes()


def test_the_report_of_a_run_whose_time_ran_out_is_a_failure(shared_command: TowerCommand) -> None:
    ended = shared_command(
        "run", "--headless", "--approve", "always", "--timeout", "0.5", "run: sleep 66.5", "--junit", "report.xml"
    )

    assert ended.code == 124
    failure = ElementTree.fromstring((shared_command.folder / "report.xml").read_bytes()).find(".//failure")
    assert failure is not None
    assert failure.attrib["type"] == "timeout"


def test_the_report_is_there_before_the_end_and_says_after_an_interrupt_that_it_was_cancelled(
    shared_command: TowerCommand, line_with: Any
) -> None:
    process = shared_command.start("run", "--headless", "--approve", "always", "run: sleep 67.5", "--junit", "report.xml")
    line_with(process, "approved by")
    report = shared_command.folder / "report.xml"
    assert b"the run has not ended" in report.read_bytes()

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 2
    assert ElementTree.fromstring(report.read_bytes()).find(".//error").attrib["type"] == "cancelled"  # type: ignore[union-attr]


def test_who_leaves_at_once_leaves_a_report_and_gives_the_runner_its_commands_back(
    tower_command: TowerCommand, line_with: Any
) -> None:
    arguments = ["--junit", "report.xml", "--annotations", "github"]
    process = tower_command.start("run", "--headless", "--approve", "always", "run: sleep 68.5", *arguments)
    word = line_with(process, "::stop-commands::").strip().removeprefix("::stop-commands::")
    line_with(process, "approved by")
    daemon = tower_command.endpoints["pid"]

    os.kill(daemon, signal.SIGSTOP)  # so that the cancelled run cannot end
    try:
        process.send_signal(signal.SIGINT)
        line_with(process, "cancelling")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 2
        rest = process.stderr.read().decode()
    finally:
        os.kill(daemon, signal.SIGCONT)
        process.communicate()
    assert b"left before the run had ended" in (tower_command.folder / "report.xml").read_bytes()
    assert f"::{word}::\n::endgroup::\n::error title=tower run::cancelled" in rest


@pytest.mark.parametrize("place", ["/proc/report.xml", "file/report.xml"])
def test_a_report_that_cannot_be_written_is_noticed_before_anything_runs(tower_command: TowerCommand, place: str) -> None:
    (tower_command.folder / "file").write_text("")

    ended = tower_command("run", "--headless", "say: hi", "--junit", place)

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.startswith(f"tower: cannot write `{place}`: ")
    assert "hint: give another file with `--junit`" in ended.stderr
    assert not (tower_command.home / "run").exists(), "no daemon was started for it"


def test_a_report_behind_a_link_leaves_the_link(shared_command: TowerCommand) -> None:
    (shared_command.folder / "link.xml").symlink_to("real.xml")

    shared_command("run", "--headless", "say: hi", "--junit", "link.xml")

    assert (shared_command.folder / "link.xml").is_symlink()
    assert list_cases(shared_command.folder / "real.xml") == {"run": ["system-out"]}


def test_annotations_are_on_inside_of_the_runner_and_change_nothing_else(shared_command: TowerCommand) -> None:
    plain = shared_command("run", "--headless", "say: ::error::not ours", "--json", "--accept", "no=exit 2")
    inside = shared_command(
        "run", "--headless", "say: ::error::not ours", "--json", "--accept", "no=exit 2", GITHUB_ACTIONS="true"
    )

    lines = inside.stderr.splitlines()
    assert inside.code == plain.code == 4
    assert {**inside.json, "sessionId": 0, "runId": 0} == {**plain.json, "sessionId": 0, "runId": 0}
    assert lines[0] == "::group::tower run: say: ::error::not ours"
    assert lines[1].startswith("::stop-commands::")
    word = lines[1].removeprefix("::stop-commands::")
    assert len(word) >= 32
    end = lines.index(f"::{word}::")
    assert lines[end + 1 :] == ["::endgroup::", "::error title=not accepted%3A no::exit code 2: exit 2"]
    assert not any(line.startswith("::") for line in lines[2:end]), "nobody speaks to the runner in between"
    assert "::" not in plain.stderr.replace("say: ::error::not ours", "").replace("::error::not ours", "")


def test_annotations_can_be_switched_off(shared_command: TowerCommand) -> None:
    assert (
        "::group::" not in shared_command("run", "--headless", "say: hi", "--annotations", "none", GITHUB_ACTIONS="true").stderr
    )


def test_a_run_may_go_into_a_session_that_is_there(shared_command: TowerCommand) -> None:
    first = shared_command("run", "--headless", "--json", "say: one").json

    second = shared_command("run", "--headless", "--json", "say: two", "--attach", first["sessionId"], "--accept", "ok=true")

    assert second.code == 0
    assert second.json["sessionId"] == first["sessionId"]
    assert second.json["runId"] != first["runId"]
    assert second.json["acceptance"]["passed"] == 1
    assert "say: one" not in second.stderr, "what was there before is not told again"


def test_a_run_into_a_session_prints_only_its_own_events(shared_command: TowerCommand) -> None:
    first = shared_command("run", "--headless", "--jsonl", "say: one").events

    second = shared_command("run", "--headless", "--jsonl", "say: two", "--attach", first[0]["sessionId"]).events

    assert [event["seq"] for event in second] == list(range(len(first) + 1, len(first) + len(second) + 1))
    assert second[0]["payload"]["detail"] == "say: two"


def test_while_another_run_is_under_way_it_is_refused_or_waits_its_turn(shared_command: TowerCommand, line_with: Any) -> None:
    until_told = "run: until [ -e go ]; do sleep 0.05; done"
    busy = shared_command.start("run", "--headless", "--json", "--approve", "always", until_told)
    session_id = line_with(busy, "session ").split()[1]
    line_with(busy, "approved by")

    refused = shared_command("run", "--headless", "say: two", "--attach", session_id)
    queued = shared_command.start("run", "--headless", "--json", "say: two", "--attach", session_id, "--queue")
    line_with(queued, "another run is under way")
    (shared_command.folder / "go").touch()
    first, _ = busy.communicate(timeout=60)
    second, _ = queued.communicate(timeout=60)

    assert refused.code == 1
    assert "RUN_IN_PROGRESS" in refused.stderr
    assert "`--queue`" in refused.stderr
    assert (busy.returncode, queued.returncode) == (0, 0)
    assert json.loads(first)["outcome"] == "success"
    assert json.loads(second)["summary"] == "two"


def test_the_turn_is_not_waited_for_longer_than_the_timeout(shared_command: TowerCommand, line_with: Any) -> None:
    busy = shared_command.start("run", "--headless", "--approve", "always", "run: sleep 69.5")
    session_id = line_with(busy, "session ").split()[1]
    line_with(busy, "approved by")

    ended = shared_command(
        "run", "--headless", "say: two", "--attach", session_id, "--queue", "--timeout", "0.3", "--junit", "r.xml"
    )
    busy.send_signal(signal.SIGINT)
    busy.communicate(timeout=60)

    assert ended.code == 124
    assert "not free within 0.3 s" in ended.stderr
    assert list_cases(shared_command.folder / "r.xml") == {"run": ["error"]}


def test_a_program_in_a_terminal_takes_no_run(shared_command: TowerCommand) -> None:
    session_id = shared_command("exec", "--json", "--detach", "--", "sleep", "0.1").json["sessionId"]

    ended = shared_command("run", "--headless", "hi", "--attach", session_id)

    assert ended.code == 1
    assert "is a program in a terminal" in ended.stderr
    assert "hint: " in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--queue"],
        ["--token", "att_1"],
        ["--attach", ""],
        ["--attach", "last", "--cwd", "."],
        ["--attach", "last", "--worktree"],
        ["--attach", "last", "--model", "x"],
        ["--attach", "last", "--max-turns", "3"],
        ["--annotations", "gitlab"],
        ["--junit", "/tmp"],
    ],
)
def test_what_does_not_go_together_is_wrong_usage(tower_command: TowerCommand, arguments: list[str]) -> None:
    ended = tower_command("run", "--headless", "x", *arguments)

    assert (ended.code, ended.stdout) == (64, b"")
    assert "hint: " in ended.stderr
