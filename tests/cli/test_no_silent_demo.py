"""Where no model is configured: a run for a machine fails, and only a person at a terminal gets the demo model."""

from typing import Any
from xml.etree import ElementTree

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.terminal import TerminalDriver

NOT_FOUND = "no key and no model server was found"
DEMO_ANSWERS = "no model is configured, so the demo model answers"


@pytest.fixture
def unconfigured_command(tower_command: TowerCommand) -> Any:
    tower_command.environment["TOWER_PROVIDER"] = "auto"
    return tower_command


def test_runs_for_machines_fail_and_name_the_remedy(unconfigured_command: TowerCommand) -> None:
    headless = unconfigured_command("run", "--headless", "say: hi")
    as_json = unconfigured_command("run", "--headless", "--json", "say: hi")
    with_report = unconfigured_command("run", "--headless", "--junit", "report.xml", "say: hi")

    assert (headless.code, headless.stdout) == (1, b"")
    assert NOT_FOUND in headless.stderr
    assert "`--provider demo`" in headless.stderr
    assert as_json.code == 1
    assert as_json.json["error"].keys() == {"code", "message", "hint"}
    assert as_json.json["error"]["code"] == "PROVIDER_NOT_CONFIGURED"
    assert as_json.json["error"]["message"].endswith(NOT_FOUND)
    assert "`ANTHROPIC_API_KEY`" in as_json.json["error"]["hint"]
    assert with_report.code == 1
    failure = ElementTree.fromstring((unconfigured_command.folder / "report.xml").read_bytes()).find(".//failure")
    assert failure is not None
    assert NOT_FOUND in (failure.text or "")
    assert unconfigured_command("sessions", "--json").json == [], "no session is left of a run that was refused"


def test_the_demo_answers_a_machine_that_asks_for_it_and_does_not_pass_for_another_model(
    unconfigured_command: TowerCommand,
) -> None:
    assert unconfigured_command("run", "--headless", "--provider", "demo", "say: hi").stdout == b"hi\n"
    named = unconfigured_command("run", "--headless", "--model", "gpt-5", "say: hi")
    misnamed = unconfigured_command("run", "--headless", "--provider", "demo", "--model", "gpt-5", "say: hi")

    assert (named.code, misnamed.code) == (1, 1)
    assert "no usable provider is known to have the model `gpt-5`" in named.stderr
    assert "`demo` has no model `gpt-5`" in misnamed.stderr


def test_what_the_demo_does_not_understand_is_a_failed_run(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "--json", "fix it")

    assert ended.code == 1
    assert ended.json["outcome"] == "failed"
    assert "did not understand" in ended.json["summary"]


def test_at_a_terminal_the_demo_answers_and_the_run_says_so(unconfigured_command: TowerCommand) -> None:
    terminal = TerminalDriver(unconfigured_command, "run", "say: hi")

    assert terminal.end() == 0
    assert DEMO_ANSWERS in terminal.shown


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--headless"], {}),
        (["--json"], {}),
        (["--jsonl"], {}),
        (["--junit", "r.xml"], {}),
        (["--model", "m"], {}),
        ([], {"CI": "1"}),
    ],
    ids=["headless", "json", "jsonl", "junit", "model", "ci"],
)
def test_also_at_a_terminal_the_demo_does_not_answer_what_a_machine_reads(
    unconfigured_command: TowerCommand, arguments: list[str], environment: dict[str, str]
) -> None:
    terminal = TerminalDriver(unconfigured_command, "run", *arguments, "say: hi", **environment)

    assert terminal.end() == 1
    assert "PROVIDER_NOT_CONFIGURED" in terminal.shown
