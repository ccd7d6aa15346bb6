"""The questions of an interview and what counts as an answer to them. Pure.

What an extension is written against. It is a plugin: an entry point of the group `switchtower.extensions` that names an
`Extension`, or something that makes one when it is called.

A command runs inside the daemon, in the event loop and in the user's name: it must await, never block. It can ask people
and hand a prompt to the agent; what it cannot do is speak for the model or put words into the journal."""

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


GROUP = "switchtower.extensions"


class ExtensionError(Exception):
    """Why a command cannot go on, in one sentence for people. A command may raise it itself: its run then ends as failed."""


class DialogFailed(ExtensionError):
    """Nobody answered: the time was over, or there is nobody to ask."""


class DialogDismissed(ExtensionError):
    """Somebody saw the question and did not want to answer it. A run that ends with it counts as cancelled."""


class RepositoryInfo(Struct, frozen=True, kw_only=True):
    """The git repository of a workspace, as far as one can tell by looking."""

    branch: str | None
    """None when no branch is checked out."""
    commit: str | None
    """None before the first one."""
    changed: int = 0
    """Files that differ from the commit or are new to git."""
    base: str | None = None
    """The branch that this one seems to have left: the remote's default, or `main`, `master` and the like. None on that one."""
    ahead: int = 0
    """Commits that the branch has and its base has not."""


class Ui(Protocol):
    """Asks people. The first answer counts, whichever client it comes from. `timeout` is in seconds; without it the
    configured one holds.

    Each raises `DialogFailed` when nobody answers and `Dismissed` when somebody does not want to."""

    async def select(self, title: str, options: Sequence[str], *, timeout: float | None = None) -> str:
        """One of the options."""
        ...

    async def confirm(self, title: str, message: str, *, timeout: float | None = None) -> bool: ...

    async def input(self, title: str, placeholder: str | None = None, *, timeout: float | None = None) -> str:
        """A line of text. It may be empty."""
        ...

    async def editor(self, title: str, prefill: str | None = None, *, timeout: float | None = None) -> str:
        """Text of any length."""
        ...

    async def interview(
        self, title: str, questions: Sequence[InterviewQuestion | Mapping[str, Any]], *, timeout: float | None = None
    ) -> dict[str, Any]:
        """The answers by the questions' ids, checked: a text, an option, a list of options, or a boolean. Whoever leaves out
        what is required is asked again."""
        ...


class ExtensionContext(Protocol):
    """What a command is given."""

    @property
    def workspace(self) -> str:
        """The folder that the session works in."""
        ...

    @property
    def session_id(self) -> str: ...

    @property
    def ui(self) -> Ui: ...

    async def notify(self, text: str) -> None:
        """Tells people what is going on. The last word of a command that returns None is its run's summary."""
        ...

    async def repository(self) -> RepositoryInfo | None:
        """A look at the workspace's git repository that runs nothing of the repository's own; None when there is none."""
        ...


Context = ExtensionContext
"""The name that installed extensions import, as in docs/extensions.md."""

Run = Callable[[ExtensionContext, str], Awaitable[str | None]]
"""Takes what was written behind the name. The text that comes back is the prompt of this run; None ends the run as a
success without asking the model."""


class ExtensionCommand(Struct, frozen=True):
    """`name` is lower case letters, digits, `_` and `-`; a message calls it as `/name`."""

    name: str
    description: str
    run: Run


Command = ExtensionCommand
"""The name that installed extensions import, as in docs/extensions.md."""


class Extension(Struct, frozen=True):
    name: str
    description: str
    commands: tuple[ExtensionCommand, ...]
