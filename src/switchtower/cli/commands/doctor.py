"""`tower doctor`: looks at everything that a daemon needs, and says what to do about what is wrong. Changes nothing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output

if TYPE_CHECKING:
    from switchtower.cli.doctoring import finding

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@click.option("--deep", is_flag=True, help="Also start your MCP servers for a moment, and see whether the hub can be reached.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: ok, and each check with its status, detail and remedy.")
def doctor(deep: bool, as_json: bool) -> int:
    """Look at everything that the daemon needs. Each line is `ok`, or `warn` or `fail` with a remedy.

    Models are those of the running daemon, as `tower models` lists them; of keys only the place they come from is shown. Exits
    with 0 when nothing fails, and with 1 when something does.

    \b
    Example:
      tower doctor
      tower doctor --json | jq '.checks[] | select(.status != "ok")'
    """
    import msgspec

    found: list[finding.Finding] = []
    for one in _collect_findings(deep=deep):
        found.append(one)
        if not as_json:
            _print_finding(one)
    fails, warns = (sum(one.status == status for one in found) for status in ("fail", "warn"))
    if as_json:
        output.write_line(msgspec.json.encode({"ok": not fails, "checks": found}))
    else:
        console.print_line(f"{len(found)} checks: {fails} failed, {warns} with a warning")
    return console.ExitStatus.FAILED if fails else console.ExitStatus.OK


def _collect_findings(*, deep: bool) -> "Iterator[finding.Finding]":
    from switchtower import config
    from switchtower.cli.doctoring import finding, home, machine, parts

    yield from machine.check_machine()
    try:
        settings = config.load()
    except config.ConfigError as problem:
        yield finding.report_failure("configuration", problem.message, problem.hint)
        return  # without the settings nobody knows where the rest is
    there = settings.config_file.exists()
    yield finding.report_ok("configuration", f"{settings.config_file}{'' if there else ' is not there: the defaults hold'}")
    yield machine.check_disk(settings)
    yield from _run_guarded("home", home.check_home(settings))
    yield from _run_guarded("parts", parts.check_services(settings, deep=deep))


def _run_guarded(name: str, look: "Iterator[finding.Finding]") -> "Iterator[finding.Finding]":
    """What goes away, or is closed to us, between two looks ends one room's findings and not all of them."""
    from switchtower.cli.doctoring import finding

    try:
        yield from look
    except OSError as problem:
        yield finding.report_failure(name, f"{problem.strerror or problem}: {problem.filename or '-'}", "see who owns it")


def _print_finding(one: "finding.Finding") -> None:
    line = console.escape_unprintable(one.detail if one.remedy is None else f"{one.detail}; hint: {one.remedy}")
    status = f"{one.status:<4}"
    if console.supports_colour(1):
        status = console.paint(status, _COLOURS[one.status])
    output.write_line(f"{status}  {one.name:<15} {' '.join(line.splitlines())}")
