"""The JUnit report: what it counts, and that any XML reader can read it, whatever a program has put out."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.cli.runs import ci_report
from switchtower.cli.runs.ci_report import CriterionCheck, RunVerdict
from switchtower.protocols.push import messages

BEGAN = 1_800_000_000.0


def read(found: RunVerdict) -> ElementTree.Element:
    suites = ElementTree.fromstring(ci_report.render_junit(found, at=BEGAN))
    assert [suite.tag for suite in suites] == ["testsuite"]
    return suites[0]


def count_results(suite: ElementTree.Element) -> tuple[int, ...]:
    return tuple(int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped"))


def list_cases(suite: ElementTree.Element) -> dict[str, list[str]]:
    return {case.attrib["name"]: [child.tag for child in case] for case in suite.iter("testcase")}


def test_a_good_run_has_a_case_for_itself_and_one_for_each_criterion() -> None:
    suite = read(
        RunVerdict("success", "all done", (CriterionCheck("unit", "make test", True, 0, "12 passed\n"),), 1.5, "sess_1", "run_1")
    )

    assert count_results(suite) == (2, 0, 0, 0)
    assert list_cases(suite) == {"run": ["system-out"], "unit": ["system-out"]}
    assert suite.attrib["time"] == "1.500"
    assert suite.attrib["timestamp"] == "2027-01-15T08:00:00+00:00"
    assert {p.attrib["name"]: p.attrib["value"] for p in suite.iter("property")} == {"session": "sess_1", "run": "run_1"}


def test_a_criterion_that_was_not_met_is_a_failure_with_its_output_and_the_run_s_own_case_passes() -> None:
    suite = read(
        RunVerdict("success", "done", (CriterionCheck("unit", "make test", False, 2, "\x1b[31mE\x1b[0m boom\r\nE again\n"),))
    )

    assert count_results(suite) == (2, 1, 0, 0)
    failure = suite.find("testcase[@name='unit']/failure")
    assert failure is not None
    assert failure.attrib == {"type": "acceptance", "message": "exit code 2: make test"}
    assert failure.text == "E boom\nE again\n", "without colours"
    assert list_cases(suite)["run"] == ["system-out"]


@pytest.mark.parametrize(
    ("outcome", "tag", "counted"),
    [
        ("failed", "failure", (2, 1, 0, 1)),
        ("denied", "failure", (2, 1, 0, 1)),
        ("timeout", "failure", (2, 1, 0, 1)),
        ("cancelled", "error", (2, 0, 1, 1)),
        ("error", "error", (2, 0, 1, 1)),
    ],
)
def test_a_run_that_did_not_end_well_says_how_and_its_criteria_are_skipped(
    outcome: str, tag: str, counted: tuple[int, ...]
) -> None:
    suite = read(RunVerdict(outcome, "why\nand more", (CriterionCheck("unit", "make test"),)))

    assert count_results(suite) == counted
    assert list_cases(suite) == {"run": [tag], "unit": ["skipped"]}
    ending = suite.find(f"testcase[@name='run']/{tag}")
    assert ending is not None
    assert (ending.attrib["type"], ending.attrib["message"], ending.text) == (outcome, "why", "why\nand more")


@given(st.text(), st.text(), st.text())
def test_whatever_was_said_the_report_is_xml_and_loses_nothing_that_xml_can_carry(said: str, name: str, output: str) -> None:
    suite = read(RunVerdict("failed", said, (CriterionCheck(name, name, False, 1, output),), 0.0, name, name))

    assert count_results(suite) == (2, 2, 0, 0)
    [_, case] = suite.iter("testcase")
    if name.isprintable():
        assert case.attrib["name"] == name
    if all(character.isprintable() or character == "\n" for character in output):
        assert (case[0].text or "") == output


def test_characters_that_xml_cannot_carry_are_spelled_out() -> None:
    suite = read(RunVerdict("failed", "a\x00b\x1bc\ud800d\ufffee\x85f"))

    ending = suite.find("testcase/failure")
    assert ending is not None
    assert ending.text == "a\\x00b\\x1bc\\ud800d\\ufffee\x85f"


def test_of_endless_output_the_end_is_kept() -> None:
    suite = read(
        RunVerdict("success", "", (CriterionCheck("unit", "x", False, 1, "a" * ci_report.MAX_OUTPUT_CHARS + "the reason"),))
    )

    text = suite.findtext("testcase[@name='unit']/failure") or ""
    assert text.startswith("[10 characters left out]\n")
    assert text.endswith("the reason")
    assert len(text) < ci_report.MAX_OUTPUT_CHARS + 100


def complete(outcome: messages.RunOutcome, hint: int, *results: messages.CriterionResult) -> messages.RunComplete:
    acceptance = messages.Acceptance(len(results), sum(result.passed for result in results), list(results))
    return messages.RunComplete("run_1", outcome, "said", acceptance, messages.Headless(hint))


def test_a_run_that_is_only_not_accepted_did_its_work() -> None:
    criteria = [messages.AcceptanceCriterion("a", "true"), messages.AcceptanceCriterion("b", "false")]
    results = [messages.CriterionResult("b", False, 1, "no"), messages.CriterionResult("a", True, 0, "")]

    found = ci_report.make_verdict(complete("failed", 4, *results), criteria, session_id="sess_1", seconds=2.0)

    assert found == RunVerdict(
        "success",
        "said",
        (CriterionCheck("a", "true", True), CriterionCheck("b", "false", False, 1, "no")),
        2.0,
        "sess_1",
        "run_1",
    )


def test_two_criteria_of_one_name_have_each_their_own_result() -> None:
    criteria = [messages.AcceptanceCriterion("a", "true"), messages.AcceptanceCriterion("a", "false")]
    results = [messages.CriterionResult("a", True, 0, ""), messages.CriterionResult("a", False, 1, "")]

    found = ci_report.make_verdict(complete("failed", 4, *results), criteria, session_id="sess_1", seconds=0.0)

    assert [(check.command, check.passed) for check in found.checks] == [("true", True), ("false", False)]


def test_a_timeout_is_no_cancellation_and_what_was_never_checked_says_so() -> None:
    criteria = [messages.AcceptanceCriterion("a", "true")]

    found = ci_report.make_verdict(complete("cancelled", 2), criteria, session_id="sess_1", seconds=0.0, timed_out=True)

    assert (found.outcome, found.checks) == ("timeout", (CriterionCheck("a", "true"),))


def test_line_ends_of_any_kind_are_read_as_they_were_written() -> None:
    suite = read(RunVerdict("failed", "one\rtwo\r\nthree\tfour", (), 0.0, "a\nb\tc\rd"))

    assert suite.findtext("testcase/failure") == "one\rtwo\r\nthree\tfour"
    assert [p.attrib["value"] for p in suite.iter("property")] == ["a\nb\tc\rd"]
