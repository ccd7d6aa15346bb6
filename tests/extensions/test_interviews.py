"""The questions of an interview, and what counts as an answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.extensions import port
from switchtower.extensions.port import InterviewQuestion

TEXT = InterviewQuestion("name", "text", "Who?", required=True)
SINGLE = InterviewQuestion("color", "single", "Which?", options=("red", "green"))
MULTI = InterviewQuestion("sizes", "multi", "Which ones?", options=("s", "m", "l"))
BOOLEAN = InterviewQuestion("sure", "boolean", "Sure?")
ALL = (TEXT, SINGLE, MULTI, BOOLEAN)


def test_answers_of_the_right_kind_are_kept_and_what_nobody_asked_is_left_out() -> None:
    given_ = {"name": "Ada", "color": "green", "sizes": ["s", "l"], "sure": False, "__proto__": "x"}

    assert port.check_responses(ALL, given_) == ({"name": "Ada", "color": "green", "sizes": ["s", "l"], "sure": False}, [])


@pytest.mark.parametrize("empty", [None, "", "  \n", []])
def test_an_empty_answer_is_none_and_missing_only_where_one_is_required(empty: object) -> None:
    answers, problems = port.check_responses(ALL, {"name": empty, "color": empty, "sizes": empty, "sure": None})

    assert (answers, problems) == ({}, ["“Who?” needs an answer"])


@pytest.mark.parametrize(
    ("question", "answer", "problem"),
    [
        (TEXT, 7, "is not a text"),
        (TEXT, "x" * (port.LONGEST_ANSWER + 1), "is longer than 65536 characters"),
        (SINGLE, "blue", "is none of the options"),
        (SINGLE, ["red"], "is none of the options"),
        (MULTI, "s", "is not a list of the options"),
        (MULTI, ["s", "xl"], "is not a list of the options"),
        (MULTI, [["s"]], "is not a list of the options"),
        (BOOLEAN, "yes", "is neither yes nor no"),
        (BOOLEAN, 1, "is neither yes nor no"),
    ],
)
def test_an_answer_of_another_kind_does_not_count(question: InterviewQuestion, answer: object, problem: str) -> None:
    answers, problems = port.check_responses((question,), {question.id: answer})

    assert (answers, problems) == ({}, [f"the answer to “{question.question}” {problem}"])


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["name", "color", "sizes", "sure", "else"]), _ANYTHING))
def test_whatever_comes_what_is_kept_is_what_was_asked_for(responses: dict[str, Any]) -> None:
    answers, problems = port.check_responses(ALL, responses)

    assert port.check_responses(ALL, answers)[0] == answers
    assert set(answers) <= {"name", "color", "sizes", "sure"}
    assert "name" in answers or problems


@pytest.mark.parametrize(
    ("questions", "why"),
    [
        ([], "1 to 50 questions"),
        ([TEXT] * 51, "1 to 50 questions"),
        ([TEXT, TEXT], "the same id"),
        ([{"id": "a", "type": "single", "question": "?"}], "no options"),
        ([{"id": "a", "type": "date", "question": "?"}], "Invalid enum value"),
        ([{"id": "a", "type": "text"}], "missing required field `question`"),
        ([{"id": "a", "type": "text", "question": "?", "answer": 1}], "unknown field `answer`"),
        ([InterviewQuestion("", "text", "?")], "length >= 1"),
        ([7], "Expected `object`"),
    ],
)
def test_what_cannot_be_asked_is_refused(questions: list[Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        port.parse_questions(questions)
