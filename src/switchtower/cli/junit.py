"""A verdict as JUnit XML: one suite, one case for the run and one for each acceptance criterion. Pure.

What models and programs say may hold anything, and XML 1.0 may not: characters that it cannot carry are spelled out.
"""

import datetime
import re
from collections.abc import Iterator

from switchtower.cli import console
from switchtower.cli.verdict import CriterionCheck, RunVerdict

MAX_OUTPUT_CHARS = 256 * 1024
"""Characters of one criterion's output; of more, the end, where the reason usually is."""

_INVALID_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_ATTRIBUTE_ESCAPES = {**_TEXT_ESCAPES, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}

SUITE_NAME = "tower run"


def render_junit(verdict: RunVerdict, *, at: float) -> bytes:
    """`at` is when the run began, in seconds since 1970."""
    failures = len(verdict.failed_checks) + (verdict.outcome in ("failed", "denied", "timeout"))
    errors = int(verdict.outcome in ("error", "cancelled"))
    skipped = sum(check.passed is None for check in verdict.checks)
    began = datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="seconds")
    counts = _format_attributes(
        name=SUITE_NAME,
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
        *_render_properties(verdict),
        *_render_run(verdict),
        *(line for check in verdict.checks for line in _render_check(check)),
        "</testsuite>",
        "</testsuites>",
        "",
    ]
    return "\n".join(lines).encode()


def _render_properties(verdict: RunVerdict) -> Iterator[str]:
    known = {"session": verdict.session_id, "run": verdict.run_id}
    told = [f"<property{_format_attributes(name=name, value=value)}/>" for name, value in known.items() if value is not None]
    if told:
        yield f"<properties>{''.join(told)}</properties>"


def _render_run(verdict: RunVerdict) -> Iterator[str]:
    yield f"<testcase{_format_attributes(classname=SUITE_NAME, name='run', time=f'{verdict.seconds:.3f}')}>"
    first_line = verdict.message.strip().partition("\n")[0]
    match verdict.outcome:
        case "success":
            if verdict.message:
                yield f"<system-out>{escape_xml(verdict.message)}</system-out>"
        case "error" | "cancelled":
            yield f"<error{_format_attributes(type=verdict.outcome, message=first_line)}>{escape_xml(verdict.message)}</error>"
        case _:
            yield f"<failure{_format_attributes(type=verdict.outcome, message=first_line)}>{escape_xml(verdict.message)}</failure>"
    yield "</testcase>"


def _render_check(check: CriterionCheck) -> Iterator[str]:
    yield f"<testcase{_format_attributes(classname=f'{SUITE_NAME}.acceptance', name=check.id)}>"
    if check.passed is None:
        yield f"<skipped{_format_attributes(message=f'not checked: {check.command}')}/>"
    elif check.passed:
        if check.output:
            yield f"<system-out>{_format_output(check)}</system-out>"
    else:
        message = f"exit code {check.exit_code}: {check.command}"
        yield f"<failure{_format_attributes(type='acceptance', message=message)}>{_format_output(check)}</failure>"
    yield "</testcase>"


def _format_output(check: CriterionCheck) -> str:
    put_out = check.output
    left_out = len(put_out) - MAX_OUTPUT_CHARS
    if left_out > 0:
        put_out = f"[{left_out} characters left out]\n{put_out[left_out:]}"
    return escape_xml(console.strip_terminal_codes(put_out))


def escape_xml(text: str) -> str:
    """As the content of an element."""
    return _escape(text, _TEXT_ESCAPES)


def _format_attributes(**values: object) -> str:
    return "".join(f' {name}="{_escape(str(value), _ATTRIBUTE_ESCAPES)}"' for name, value in values.items())


def _escape(text: str, escapes: dict[str, str]) -> str:
    carried = _INVALID_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return "".join(escapes.get(character, character) for character in carried)
