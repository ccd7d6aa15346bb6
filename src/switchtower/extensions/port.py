"""The API of extensions. An extension is a plugin: an entry point of the group `switchtower.extensions` that names an
`Extension`, or a callable that makes one.

A command runs inside the daemon, in the event loop and in the user's name: it must await, never block. It can ask the user and
hand a prompt to the agent; it cannot answer for the model or write to the journal.

The questions of an interview, and the check of their answers, are here too.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

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
    """Raises `ValueError` for invalid questions."""
    if not 1 <= len(questions) <= MOST_QUESTIONS:
        raise ValueError(f"an interview has 1 to {MOST_QUESTIONS} questions, not {len(questions)}")
    # The questions are converted to plain values and back: a struct's fields are checked only by the decoder.
    plain = [msgspec.to_builtins(question) for question in questions]
    asked = tuple(msgspec.convert(question, InterviewQuestion) for question in plain)
    if len({question.id for question in asked}) < len(asked):
        raise ValueError("two questions have the same id")
    for question in asked:
        if question.type in ("single", "multi") and not question.options:
            raise ValueError(f"the question `{question.id}` has no options to choose from")
    return asked


def check_responses(questions: Sequence[InterviewQuestion], responses: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the valid answers, and the problems of the others. Answers without a question are left out, and so are empty
    ones.
    """
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
    """Returns a clause that continues "the answer"."""
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


GROUP = "switchtower.extensions"


class ExtensionError(Exception):
    """A command cannot continue; the text is one sentence for people. A command may raise it itself: its run then ends as
    failed.
    """


class DialogFailed(ExtensionError):
    """No user answered: the time was over, or no client can show the question."""


class DialogDismissed(ExtensionError):
    """A user saw the question and dismissed it. A run that ends with it counts as cancelled."""


class RepositoryInfo(Struct, frozen=True, kw_only=True):
    """The git repository of a workspace, as far as it can be inspected without running its programs."""

    branch: str | None
    """None when no branch is checked out."""
    commit: str | None
    """None before the first commit."""
    changed: int = 0
    """The number of files that differ from the commit or are new to git."""
    base: str | None = None
    """The branch that this one seems to start from: the remote's default, or `main`, `master` and the like. None on that branch
    itself.
    """
    ahead: int = 0
    """The number of commits that the branch has and its base lacks."""


class Ui(Protocol):
    """Asks the user. The first answer counts, whichever client it comes from. `timeout` is in seconds; without it the configured
    one applies.

    Each method raises `DialogFailed` when no user answers and `DialogDismissed` when a user dismisses the question.
    """

    async def select(self, title: str, options: Sequence[str], *, timeout: float | None = None) -> str:
        """Returns one of the options."""
        ...

    async def confirm(self, title: str, message: str, *, timeout: float | None = None) -> bool: ...

    async def input(self, title: str, placeholder: str | None = None, *, timeout: float | None = None) -> str:
        """Returns a line of text, which may be empty."""
        ...

    async def editor(self, title: str, prefill: str | None = None, *, timeout: float | None = None) -> str:
        """Returns text of any length."""
        ...

    async def interview(
        self, title: str, questions: Sequence[InterviewQuestion | Mapping[str, Any]], *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Returns the checked answers by the questions' ids: a text, an option, a list of options, or a boolean. A user who
        leaves out a required answer is asked again.
        """
        ...


class ExtensionContext(Protocol):
    """The context that a command gets."""

    @property
    def workspace(self) -> str:
        """The folder that the session works in."""
        ...

    @property
    def session_id(self) -> str: ...

    @property
    def ui(self) -> Ui: ...

    async def notify(self, text: str) -> None:
        """Shows progress to the user. The last notification of a command that returns None is its run's summary."""
        ...

    async def repository(self) -> RepositoryInfo | None:
        """Inspects the workspace's git repository without running any of its programs; returns None when there is none."""
        ...


Run = Callable[[ExtensionContext, str], Awaitable[str | None]]
"""Takes the text behind the name. The returned text is the prompt of this run; None ends the run as a success without a model
call.
"""


class ExtensionCommand(Struct, frozen=True):
    """`name` is lower case letters, digits, `_` and `-`; a message calls it as `/name`."""

    name: str
    description: str
    run: Run


class Extension(Struct, frozen=True):
    name: str
    description: str
    commands: tuple[ExtensionCommand, ...]
