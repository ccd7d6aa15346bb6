"""`tower run`: one run in a new session, from the text to the exit code."""

import asyncio
from pathlib import Path
from typing import Any

import click

from switchtower.cli import arguments


def _criteria(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = []
    for value in values:
        criterion_id, equals, command = value.partition("=")
        if not (criterion_id and equals and command.strip()):
            raise click.BadParameter(f"`{value}` is not ID=COMMAND", ctx, parameter)
        pairs.append((criterion_id, command))
    return pairs


def _rules(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Any:
    from switchtower.cli import approvals

    try:
        return approvals.parse(values)
    except ValueError as problem:
        raise click.BadParameter(str(problem), ctx, parameter) from None


@click.command()
@click.argument("text")
@click.option("--headless", is_flag=True, help="Ask nothing: what `--approve` does not allow is denied.")
@click.option(
    "--accept",
    "criteria",
    multiple=True,
    metavar="ID=COMMAND",
    callback=_criteria,
    help="Counts as success only if COMMAND, run afterwards in the folder, exits with 0. Repeatable.",
)
@click.option(
    "--approve",
    "rules",
    multiple=True,
    metavar="never|always|RULE",
    callback=_rules,
    help="What may happen without asking: KIND, TOOL or TOOL:GLOB, such as `run:make *`. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object: the run's completion.")
@click.option("--jsonl", "as_jsonl", is_flag=True, help="Print each event as it comes, one a line.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Cancel the run after this long.")
@click.option(
    "--cwd",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    metavar="DIR",
    help="The folder to work in; the current one by default.",
)
@click.option("--provider", metavar="NAME", help="The model provider; the configured one by default.")
@click.option("--model", metavar="NAME", help="One of the provider's models; its usual one by default.")
def run(
    text: str,
    headless: bool,
    criteria: list[tuple[str, str]],
    rules: Any,
    as_json: bool,
    as_jsonl: bool,
    timeout: float | None,
    folder: Path,
    provider: str | None,
    model: str | None,
) -> int:
    """Start a run in a new session and wait for its outcome.

    TEXT is what to do; `-` reads it from stdin. The answer goes to stdout, progress to stderr. Without --headless, approvals
    are asked at the terminal. Ctrl-C cancels the run; a second one leaves at once.

    A wildcard in a rule's GLOB stays inside one folder (`**` goes deeper) or inside one simple command: it never stands for
    what would chain, redirect or expand in a shell.

    \b
    Exit codes:
      0 success, 1 failed, 2 cancelled, 3 an approval was denied, 4 acceptance failed, 64 wrong usage

    \b
    Example:
      tower run --headless "run: make test" --approve "run:make *" --accept tests="make test" --json
    """
    if as_json and as_jsonl:
        raise click.UsageError("`--json` and `--jsonl` exclude each other")
    text = arguments.message(text)

    from switchtower import config
    from switchtower.cli import headless as headless_run
    from switchtower.cli import prompt
    from switchtower.protocols.push import messages

    settings = config.load()
    job = headless_run.Job(
        text=text,
        folder=folder,
        provider=provider or settings.provider,
        model=model,
        criteria=tuple(messages.AcceptanceCriterion(criterion_id, check) for criterion_id, check in criteria),
        rules=rules,
        timeout=timeout,
        form=headless_run.Form.JSON if as_json else headless_run.Form.JSONL if as_jsonl else headless_run.Form.TEXT,
        prompts=not headless and prompt.is_possible(),
    )
    return asyncio.run(headless_run.execute(settings, job))
