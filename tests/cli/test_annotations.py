"""Annotations: one line a command, as GitHub's runner reads them, and nothing that is said can pass for another."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchtower.cli.runs import ci_report
from switchtower.cli.runs.ci_report import CriterionCheck, RunVerdict


def parse_annotation(line: str) -> tuple[str, dict[str, str], str]:
    """Its rules: `::name key=value,key=value::message`, with percent escapes."""
    assert line.startswith("::")
    head, _, message = line[2:].partition("::")
    name, _, properties = head.partition(" ")
    pairs = dict(part.split("=", 1) for part in properties.split(",")) if properties else {}
    return name, {key: _unescape(value, ":,") for key, value in pairs.items()}, _unescape(message, "")


def _unescape(text: str, more: str) -> str:
    for character in f"{more}\r\n":
        text = text.replace(f"%{ord(character):02X}", character)
    return text.replace("%25", "%")


@given(
    st.text(st.characters(categories=["L", "N", "P", "S"]) | st.sampled_from(["\r", "\n", "%", ":", ",", " "])),
    st.text(st.characters(categories=["L", "N", "P", "S"]) | st.sampled_from(["\n", "%", ":", ","])),
)
@example("%0A", "%3A%2C")
@example("100%", "%25")
def test_a_command_is_one_line_and_is_read_as_it_was_meant(message: str, title: str) -> None:
    line = ci_report.format_workflow_command("error", message, title=title)

    assert len(line.split("\n")) == len(line.split("\r")) == 1
    assert parse_annotation(line) == ("error", {"title": title}, message)


@given(st.text())
def test_no_text_makes_a_line_of_its_own(said: str) -> None:
    found = RunVerdict("failed", said, (CriterionCheck(said, said, False, 1, said),))

    lines = [*ci_report.open_group(said, "word"), *ci_report.close_group("word"), *ci_report.annotate_verdict(found)]

    assert len(lines) == 6
    assert all("\n" not in line and "\r" not in line and "\x1b" not in line for line in lines)
    assert [line[: line.index("::", 2)].split(" ")[0] for line in lines] == [
        "::group",
        "::stop-commands",
        "::word",
        "::endgroup",
        "::error",
        "::error",
    ]


def test_a_good_run_is_one_notice() -> None:
    found = RunVerdict("success", "all\ndone", (CriterionCheck("unit", "make test", True),))

    assert list(ci_report.annotate_verdict(found)) == ["::notice title=tower run::success: all%0Adone"]


def test_what_was_not_accepted_is_an_error_with_the_end_of_its_output() -> None:
    found = RunVerdict(
        "success",
        "done",
        (CriterionCheck("a:b", "make, test", False, 3, "x" * ci_report.MAX_ANNOTATION_CHARS + "\x1b[31mreason\n"),),
    )

    [line] = ci_report.annotate_verdict(found)

    name, properties, message = parse_annotation(line)
    assert (name, properties) == ("error", {"title": "not accepted: a:b"})
    assert message.startswith("exit code 3: make, test\n…x")
    assert message.endswith("reason")
    assert len(message) < ci_report.MAX_ANNOTATION_CHARS + 100


@pytest.mark.parametrize("outcome", ["failed", "denied", "cancelled", "timeout", "error"])
def test_any_other_ending_is_an_error(outcome: str) -> None:
    assert list(ci_report.annotate_verdict(RunVerdict(outcome, "why"))) == [f"::error title=tower run::{outcome}: why"]
    assert list(ci_report.annotate_verdict(RunVerdict(outcome))) == [f"::error title=tower run::{outcome}"]


@pytest.mark.parametrize(
    ("named", "environ", "wanted"),
    [
        (None, {}, False),
        (None, {"GITHUB_ACTIONS": "true"}, True),
        (None, {"GITHUB_ACTIONS": "false"}, False),
        ("github", {}, True),
        ("none", {"GITHUB_ACTIONS": "true"}, False),
    ],
)
def test_they_are_there_where_somebody_asks_or_inside_of_the_runner(
    named: str | None, environ: dict[str, str], wanted: bool
) -> None:
    assert ci_report.should_annotate(named, environ) is wanted
