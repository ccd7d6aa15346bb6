"""The questions of the set-up and what their answers mean, as data. Pure: who puts them, and how, is elsewhere."""

from msgspec import Struct, structs

from switchtower import config
from switchtower.cli.settingup.found import Found

POLICIES = {
    "read-only": "it may look at everything, and changes nothing",
    "ask": "it reads by itself, and asks before it writes or runs something",
    "auto": "it also writes files of the workspace by itself, and asks before it runs something",
    "yolo": "it asks nobody about anything",
}
assert tuple(POLICIES) == config.POLICIES, "each profile has its line"
_LONGEST_NAME = 200


class Option(Struct, frozen=True):
    value: str
    note: str = ""


class Question(Struct, frozen=True, kw_only=True):
    """`name` is the field of `Answers` that its answer goes to."""

    name: str
    text: str
    options: tuple[Option, ...]
    usual: str | None
    """What no answer means; None where one is needed."""
    free: bool = False
    """Another answer than the options is one too."""


class Answers(Struct, frozen=True):
    provider: str | None = None
    model: str | None = None
    policy: str | None = None


class NoAnswer(ValueError):
    """What somebody said is no answer; the message says why."""


def next_question(found: Found, answers: Answers, *, policy: str) -> Question | None:
    """None when all is answered. `policy` is the one in force."""
    if answers.provider is None:
        options = tuple(Option(candidate.name, candidate.why) for candidate in found.candidates)
        keyless = tuple(Option(name, "paste its key, which is stored for you") for name in found.keyless)
        return Question(name="provider", text="Choose a model", options=(*options, *keyless), usual=options[0].value)
    candidate = found.get(answers.provider)
    if answers.model is None and answers.provider != "demo" and candidate is not None:
        names = dict.fromkeys([*([candidate.model] if candidate.model else []), *candidate.models])
        options = tuple(Option(name) for name in names)
        text = f"Which model of {answers.provider}?"
        return Question(name="model", text=text, options=options, usual=candidate.model, free=True)
    if answers.policy is None:
        options = tuple(Option(name, note) for name, note in POLICIES.items())
        return Question(name="policy", text="What may a session do unasked?", options=options, usual=policy)
    return None


def answered(answers: Answers, question: Question, said: str | None) -> Answers:
    """With what was said to the question: an option by its name or number, or nothing for the usual. Raises `NoAnswer`."""
    said = (said or "").strip()
    names = [option.value for option in question.options]
    if not said:
        if question.usual is None:
            raise NoAnswer("it needs an answer")
        chosen = question.usual
    elif said in names:
        chosen = said
    elif said.isascii() and said.isdigit() and len(said) <= 4 and 1 <= int(said) <= len(names):
        chosen = names[int(said) - 1]
    elif question.free and said.isprintable() and len(said) <= _LONGEST_NAME:
        chosen = said
    else:
        raise NoAnswer(f"it is none of {', '.join(names)}" if names and not question.free else "it is not a name")
    return structs.replace(answers, **{question.name: chosen})


def with_usual(found: Found, answers: Answers, *, policy: str) -> Answers:
    """All that is open answered as usual. Raises `NoAnswer` where something has no usual answer."""
    while (question := next_question(found, answers, policy=policy)) is not None:
        try:
            answers = answered(answers, question, None)
        except NoAnswer:
            raise NoAnswer(f"`{answers.provider}` has no model of its own choice") from None
    return answers
