"""Redaction of the text of an approval, which is never abridged.

In such a text, a mark replaces one literal and gives its length. A literal is a complete word or string, or a complete value
in
one, that has no blank, quote, expansion, operator or line end: whatever is behind a mark runs nothing. A secret that has
another
form is shown. In a private key, each line of base 64 is one literal.
"""

import re
from collections.abc import Iterable, Iterator

LITERAL = re.compile(r"[A-Za-z0-9_+/=.:@%,-]+")
"""Characters that mean themselves anywhere, in a shell as in a program's text."""

_ENDS_A_LITERAL = re.compile(r"\Z|[\s\"'`,;&|)\]}<>@:/=.+%-]|\\[\"'nrt]")
_EXPANDS = frozenset("$\\{~")

_PRIVATE_KEY = "PRIVATE KEY"
_KEY_LINE = re.compile(
    r"(?:(?<=\n[+\- ])|(?<=\\[nr])|(?<![\w+/=.\\-])(?=[A-Za-z0-9/]))[A-Za-z0-9+/]{32,}={0,2}(?![\w+/=.-])", re.ASCII
)
_MIXED = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))

_ASSIGNED = re.compile(r"([A-Za-z_]\w{0,63})=[\"']?\Z", re.ASCII)
_INTERPRETERS = "bash|dash|fish|ksh|sh|zsh|node|perl|php|python[0-9.]*|ruby|ssh"
_WRAPPER_BEFORE = re.compile(
    r"(?:\A|[\s;&|({`/])(?:\.|builtin|command|do|doas|elif|else|env|eval|exec|if|nice|nohup|source|sudo|then|time|timeout|"
    rf"until|while|xargs|{_INTERPRETERS})\s+[\"']?\Z"
)
_COMMAND_BEFORE = re.compile(r"(?:\A|[\n;&|({`!])\s*[\"']?\Z")
_INTERPRETER = re.compile(rf"(?:.*/)?(?:{_INTERPRETERS})", re.DOTALL)
_BACK = 96
_LONGEST_COMMAND = 16 * 1024
"""The shell parser gets no more: a longer text counts as not understood."""

_TEXT_KEYS = frozenset({"content", "diff", "message", "new", "old", "options", "problem", "prompt", "reason", "screen"})
"""The value of these keys is a text or a change of one, and no shell reads it."""

Span = tuple[int, int]


def make_mark(literal: str) -> str:
    """Returns the text that replaces a literal in an approval."""
    return f"[redacted, {len(literal)} character{'s' if len(literal) > 1 else ''}]"


def is_literal(text: str) -> bool:
    return LITERAL.fullmatch(text) is not None


def is_text_key(key: object) -> bool:
    return key in _TEXT_KEYS


def mask_literals(text: str, hidden: Iterable[Span], *, is_command: bool) -> str:
    """Returns the text with a mark for each literal among the `hidden` spans; the rest of these spans is shown. `is_command`
    means that a shell may read the text: then a literal that may be the name of a command is shown too.
    """
    shown: list[str] = []
    done = 0
    for start, end in find_literals(text, hidden, is_command=is_command):
        shown += (text[done:start], make_mark(text[start:end]))
        done = end
    return "".join((*shown, text[done:])) if done else text


def find_literals(text: str, hidden: Iterable[Span], *, is_command: bool) -> list[Span]:
    """Returns the parts of the hidden spans that may be masked, in order."""
    spans = [span for span in _find_candidates(text, hidden) if not _is_expanded(text, span)]
    if not is_command or not spans:
        return spans
    programs = _find_programs(text)
    return [span for span in spans if not _is_program(text, span, programs)]


def _find_candidates(text: str, hidden: Iterable[Span]) -> Iterator[Span]:
    for start, end in _join_spans(hidden):
        value = text[start:end]
        if LITERAL.fullmatch(value):
            if _ENDS_A_LITERAL.match(text, end) and text[start - 1 : start] not in _EXPANDS:
                yield start, end
        elif _PRIVATE_KEY in value:
            for line in _KEY_LINE.finditer(text, start, end):
                if all(kind.search(line[0]) for kind in _MIXED) and _ENDS_A_LITERAL.match(text, line.end()):
                    yield line.span()


def _join_spans(hidden: Iterable[Span]) -> Iterator[Span]:
    """Joins spans that overlap or touch."""
    last: Span | None = None
    for span in sorted(hidden):
        if last is not None and span[0] <= last[1]:
            last = last[0], max(last[1], span[1])
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _is_expanded(text: str, span: Span) -> bool:
    """Returns whether a variable that holds the literal is expanded, as in `SECRET=name; $SECRET`: its value decides what
    runs.
    """
    assigned = _ASSIGNED.search(text, max(0, span[0] - _BACK), span[0])
    return assigned is not None and re.search(rf"\$\{{?[!#]?{assigned[1]}\b", text) is not None


def _find_programs(text: str) -> frozenset[str] | None:
    """Returns the first words of all commands that the text runs; None when these are not certain."""
    # Imported late: few texts contain a secret, and the policy takes a while to load.
    from switchtower.core.policy import shell

    if len(text) > _LONGEST_COMMAND:
        return None
    script = shell.parse_script(text)
    programs = frozenset(command.words[0].text for command in script.commands if command.words)
    if script.unreadable or any(_INTERPRETER.fullmatch(program) for program in programs):
        return None
    return programs


def _is_program(text: str, span: Span, programs: frozenset[str] | None) -> bool:
    """Returns whether the literal is, or may be, the name of a program that the text runs."""
    start, end = span
    if _WRAPPER_BEFORE.search(text, max(0, start - _BACK), start):
        return True
    if programs is None:
        return _COMMAND_BEFORE.search(text, max(0, start - _BACK), start) is not None
    return any(text[start:end] in program for program in programs)
