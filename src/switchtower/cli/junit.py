"""A verdict as JUnit XML: one suite, one case for the run and one for each acceptance criterion. Pure.

What models and programs say may hold anything, and XML 1.0 may not: characters that it cannot carry are spelled out.
"""

import datetime
import re
from collections.abc import Iterator

from switchtower.cli import console
from switchtower.cli.verdict import Check, Verdict

MOST_OUTPUT = 256 * 1024
"""Characters of one criterion's output; of more, the end, where the reason usually is."""

_CANNOT_BE_CARRIED = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IN_TEXT = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_IN_ATTRIBUTE = {**_IN_TEXT, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}

SUITE = "tower run"


def report(verdict: Verdict, *, at: float) -> bytes:
    """`at` is when the run began, in seconds since 1970."""
    failures = len(verdict.failed_checks) + (verdict.outcome in ("failed", "denied", "timeout"))
    errors = int(verdict.outcome in ("error", "cancelled"))
    skipped = sum(check.passed is None for check in verdict.checks)
    began = datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="seconds")
    counts = _attributes(
        name=SUITE,
        tests=len(verdict.checks) + 1,
        failures=failures,
        errors=errors,
        skipped=skipped,
        time=f"{verdict.seconds:.3f}",
        timestamp=began,
    )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites{counts}>",
        f"<testsuite{counts}>",
        *_properties(verdict),
        *_run(verdict),
        *(line for check in verdict.checks for line in _check(check)),
        "</testsuite>",
        "</testsuites>",
        "",
    ]
    return "\n".join(lines).encode()


def _properties(verdict: Verdict) -> Iterator[str]:
    known = {"session": verdict.session_id, "run": verdict.run_id}
    told = [f"<property{_attributes(name=name, value=value)}/>" for name, value in known.items() if value is not None]
    if told:
        yield f"<properties>{''.join(told)}</properties>"


def _run(verdict: Verdict) -> Iterator[str]:
    yield f"<testcase{_attributes(classname=SUITE, name='run', time=f'{verdict.seconds:.3f}')}>"
    first_line = verdict.message.strip().partition("\n")[0]
    match verdict.outcome:
        case "success":
            if verdict.message:
                yield f"<system-out>{text(verdict.message)}</system-out>"
        case "error" | "cancelled":
            yield f"<error{_attributes(type=verdict.outcome, message=first_line)}>{text(verdict.message)}</error>"
        case _:
            yield f"<failure{_attributes(type=verdict.outcome, message=first_line)}>{text(verdict.message)}</failure>"
    yield "</testcase>"


def _check(check: Check) -> Iterator[str]:
    yield f"<testcase{_attributes(classname=f'{SUITE}.acceptance', name=check.id)}>"
    if check.passed is None:
        yield f"<skipped{_attributes(message=f'not checked: {check.command}')}/>"
    elif check.passed:
        if check.output:
            yield f"<system-out>{_output(check)}</system-out>"
    else:
        message = f"exit code {check.exit_code}: {check.command}"
        yield f"<failure{_attributes(type='acceptance', message=message)}>{_output(check)}</failure>"
    yield "</testcase>"


def _output(check: Check) -> str:
    put_out = check.output
    left_out = len(put_out) - MOST_OUTPUT
    if left_out > 0:
        put_out = f"[{left_out} characters left out]\n{put_out[left_out:]}"
    return text(console.program_text(put_out))


def text(said: str) -> str:
    """As the content of an element."""
    return _escaped(said, _IN_TEXT)


def _attributes(**values: object) -> str:
    return "".join(f' {name}="{_escaped(str(value), _IN_ATTRIBUTE)}"' for name, value in values.items())


def _escaped(said: str, escapes: dict[str, str]) -> str:
    carried = _CANNOT_BE_CARRIED.sub(lambda found: found[0].encode("unicode_escape").decode(), said)
    return "".join(escapes.get(character, character) for character in carried)
