"""The questions of an interview and what counts as an answer to them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

LONGEST_ANSWER = 64 * 1024
MOST_QUESTIONS = 50
MOST_OPTIONS = 200
LONGEST_LINE = 1_000

InterviewLine = Annotated[str, Meta(min_length=1, max_length=LONGEST_LINE)]


class InterviewQuestion(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`single` and `multi` choose from the options; `text` is any text."""

    id: Annotated[str, Meta(min_length=1, max_length=100)]
    type: Literal["text", "single", "multi", "boolean"]
    question: InterviewLine
    options: Annotated[tuple[InterviewLine, ...], Meta(max_length=MOST_OPTIONS)] = ()
    required: bool = False


def parse_questions(questions: Sequence[InterviewQuestion | Mapping[str, Any]]) -> tuple[InterviewQuestion, ...]:
    """Raises `ValueError` for what cannot be asked."""
    if not 1 <= len(questions) <= MOST_QUESTIONS:
        raise ValueError(f"an interview has 1 to {MOST_QUESTIONS} questions, not {len(questions)}")
    # To plain values and back: a struct's fields are checked only on the way in.
    plain = [msgspec.to_builtins(question) for question in questions]
    asked = tuple(msgspec.convert(question, InterviewQuestion) for question in plain)
    if len({question.id for question in asked}) < len(asked):
        raise ValueError("two questions have the same id")
    for question in asked:
        if question.type in ("single", "multi") and not question.options:
            raise ValueError(f"the question `{question.id}` has no options to choose from")
    return asked


def check_responses(questions: Sequence[InterviewQuestion], responses: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The answers that count, and what is wrong with the others. What nobody asked is left out; so is an empty answer."""
    answers: dict[str, Any] = {}
    problems: list[str] = []
    for question in questions:
        answer = responses.get(question.id)
        if _is_empty(answer):
            if question.required:
                problems.append(f"“{question.question}” needs an answer")
        elif (problem := _find_answer_problem(question, answer)) is not None:
            problems.append(f"the answer to “{question.question}” {problem}")
        else:
            answers[question.id] = answer
    return answers, problems


def _is_empty(answer: object) -> bool:
    return answer is None or answer == [] or (isinstance(answer, str) and not answer.strip())


def _find_answer_problem(question: InterviewQuestion, answer: object) -> str | None:
    """Goes on from "the answer"."""
    match question.type:
        case "text":
            if not isinstance(answer, str):
                return "is not a text"
            return None if len(answer) <= LONGEST_ANSWER else f"is longer than {LONGEST_ANSWER} characters"
        case "boolean":
            return None if isinstance(answer, bool) else "is neither yes nor no"
        case "single":
            return None if isinstance(answer, str) and answer in question.options else "is none of the options"
        case "multi":
            chosen = isinstance(answer, list) and all(isinstance(one, str) and one in question.options for one in answer)
            return None if chosen else "is not a list of the options"
