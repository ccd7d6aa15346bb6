"""`tower run`: one run, in a new or an existing session, from the text to the exit code."""

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from switchtower import config
from switchtower.cli import arguments
from switchtower.config import POLICIES


def _parse_criteria(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = []
    for value in values:
        criterion_id, equals, command = value.partition("=")
        if not (criterion_id and equals and command.strip()):
            raise click.BadParameter(f"`{value}` is not ID=COMMAND", ctx, parameter)
        pairs.append((criterion_id, command))
    return pairs


def _parse_rules(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Any:
    from switchtower.cli.runs import headless as runs_headless

    try:
        return runs_headless.parse_approval_rules(values)
    except ValueError as problem:
        raise click.BadParameter(str(problem), ctx, parameter) from None


def _get_configured_policy(settings: config.Settings, preset: str | None) -> Any:
    """Returns None for the default policy, because the daemon may have been started with something stricter. A preset overrides
    the configured policy, except the strictest: no file of a workspace may lift that."""
    usual = settings.policy == config.Settings.policy
    return None if usual or (preset is not None and settings.policy != POLICIES[0]) else settings.policy


def _choose_model(settings: config.Settings, provider: str | None, preset: str | None) -> tuple[str, str | None]:
    """Returns the provider and the model. With a preset, the daemon chooses from the preset and its own configuration."""
    from switchtower.cli.runs.headless import AUTO

    if provider is not None or preset is not None:
        return provider or AUTO, None
    # The configured model belongs to the configured provider only.
    return settings.provider, settings.model if settings.provider != AUTO else None


_NEW_SESSION_PARAMETERS = (
    "folder",
    "preset",
    "provider",
    "model",
    "thinking",
    "policy",
    "sandbox",
    "trust",
    "worktree",
    "max_turns",
    "max_tokens",
    "max_cost",
    "max_minutes",
)
_FLAGS = {"folder": "--cwd"}


def _check_attach(ctx: click.Context, attach: str | None, queue: bool, token: str | None) -> None:
    """Refuses options of new sessions: an existing session has its own folder, model and limits, and would ignore them."""
    if attach is None:
        if queue or token is not None:
            raise click.UsageError(
                f"`{'--queue' if queue else '--token'}` is for a session that is there; hint: name it with `--attach`"
            )
        return
    for name in _NEW_SESSION_PARAMETERS:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            flag = _FLAGS.get(name, "--" + name.replace("_", "-"))
            raise click.UsageError(
                f"`{flag}` is for a new session, and `--attach` names one that is there; hint: see `tower configure --help`"
            )


@click.command()
@click.argument("text")
@click.option("--headless", is_flag=True, help="Ask nothing: what `--approve` does not allow is denied.")
@click.option(
    "--accept",
    "criteria",
    multiple=True,
    metavar="ID=COMMAND",
    callback=_parse_criteria,
    help="Counts as success only if COMMAND, run afterwards in the folder, exits with 0. Repeatable.",
)
@click.option(
    "--approve",
    "rules",
    multiple=True,
    metavar="never|always|RULE",
    callback=_parse_rules,
    help="A rule of the policy for this run: KIND, TOOL or TOOL:PATTERN, such as `run:make test`. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object: the run's completion.")
@click.option("--jsonl", "as_jsonl", is_flag=True, help="Print each event as it comes, one a line.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a JUnit report: one case for the run, and one for each --accept.",
)
@click.option(
    "--annotations",
    "annotated_for",
    type=click.Choice(("github", "none")),
    metavar="WHOM",
    help="Mark the outcome for a runner (github, none); by default for GitHub's, inside of it.",
)
@arguments.text_option("--attach", "Run in this session, which is there already, and not in a new one.")
@click.option("--queue", is_flag=True, help="With --attach: wait while another run is under way.")
@arguments.amount_option("--timeout", "SECONDS", "Cancel the run after this long, and exit with 124.")
@arguments.folder_option("The folder to work in; the current one by default.")
@arguments.text_option("--preset", "Begin as this preset says, see `tower presets`; other options go before it.")
@arguments.text_option("--provider", "The model or provider, see `tower models`; by default the first usable one.")
@arguments.text_option("--model", "One of the provider's models; its usual one by default.")
@arguments.thinking_option("How long the model thinks, where it can")
@arguments.policy_option("What it may do unasked, by default as configured")
@arguments.sandbox_option("Where commands run, by default as configured")
@click.option("--trust", is_flag=True, help="Trust the folder: its instructions count from now on, see `tower trust`.")
@click.option("--worktree", is_flag=True, help="Work in a git worktree made for this session; the folder stays as it is.")
@arguments.amount_option("--max-turns", "N", "End the run after N calls of the model.", maximum=2**31, whole=True)
@arguments.amount_option("--max-tokens", "N", "End the run after N tokens, in and out.", maximum=2**53, whole=True)
@arguments.amount_option("--max-cost", "USD", "End the run when it has cost so much; refused for a model without a known price.")
@arguments.amount_option("--max-minutes", "M", "End the run when it has taken so long.")
@arguments.token_option
@click.pass_context
def run(
    ctx: click.Context,
    text: str,
    headless: bool,
    criteria: list[tuple[str, str]],
    rules: Any,
    as_json: bool,
    as_jsonl: bool,
    junit: Path | None,
    annotated_for: str | None,
    attach: str | None,
    queue: bool,
    timeout: float | None,
    folder: Path,
    preset: str | None,
    provider: str | None,
    model: str | None,
    thinking: Any,
    policy: Any,
    sandbox: Any,
    trust: bool,
    worktree: bool,
    max_turns: int | None,
    max_tokens: int | None,
    max_cost: float | None,
    max_minutes: float | None,
    token: str | None,
) -> int:
    """Start a run in a new session, or with --attach in one that is there, and wait for its outcome.

    TEXT is what to do; `-` reads it from stdin. The answer goes to stdout, progress to stderr. Without --headless, approvals
    and dialogs are asked at the terminal. Ctrl-C cancels the run; a second one leaves at once.

    The daemon judges the rules of --approve as it judges those of the configuration: PATTERN is a command or a path as in
    `[[rules]]`, and what must be asked each time is asked, so denied, all the same. `always` approves every question.

    \b
    Exit codes:
      0 success, 1 failed, 2 cancelled, 3 an approval was denied, 4 acceptance failed, 64 wrong usage,
      124 --timeout passed

    The JUnit report is there however the run ends. Annotations go to stderr, and while the run talks, its own words are kept
    from passing for some. --attach takes an id, a unique beginning or end of one, or `last`; it is refused while another run
    is under way there, unless --queue says to wait.

    Without a usable model the run fails, and with --json the error is printed as an object. The demo model answers only where you
    name it (`--provider demo`), or at a terminal when nothing is configured: never with --headless, --json, --jsonl, --junit or
    --model, nor where `CI` is set.

    The policy `yolo` asks nobody about anything; it is warned of and kept in the journal. A run that one of the --max limits
    ends has failed.

    \b
    Example:
      tower run "why does the build fail?" --policy read-only
      tower run "look at the last commit" --preset review
      tower run "fix the failing test" --worktree --sandbox bubblewrap --max-cost 0.50
      tower run --headless "run: make test" --approve "run:make test" --accept tests="make test" --junit report.xml
      tower run --headless --attach last --queue "say: done" --json
    """
    _check_attach(ctx, attach, queue, token)
    if as_json and as_jsonl:
        raise click.UsageError("`--json` and `--jsonl` exclude each other")
    text = arguments.read_message(text)

    from switchtower.cli.runs import ci_report
    from switchtower.cli.runs import headless as runs_headless
    from switchtower.cli.terminal import user_input
    from switchtower.protocols.push import messages

    settings = config.load()
    chosen, usual_model = _choose_model(settings, provider, preset)
    limits = messages.Limits(max_turns, max_tokens, max_cost, max_minutes)
    job = runs_headless.HeadlessRun(
        text=text,
        folder=folder,
        preset=preset,
        provider=chosen,
        model=model or usual_model,
        policy=policy or _get_configured_policy(settings, preset),
        sandbox=sandbox or "auto",
        trust=trust,
        worktree=worktree,
        thinking=thinking,
        limits=limits if limits != messages.Limits() else None,
        criteria=tuple(messages.AcceptanceCriterion(criterion_id, check) for criterion_id, check in criteria),
        approved=rules,
        timeout=timeout,
        form=runs_headless.OutputFormat.JSON
        if as_json
        else runs_headless.OutputFormat.JSONL
        if as_jsonl
        else runs_headless.OutputFormat.TEXT,
        prompts=not headless and user_input.is_interactive(),
        attach=attach,
        token=token,
        queue=queue,
        junit=junit,
        annotates=ci_report.should_annotate(annotated_for, os.environ),
        in_ci=runs_headless.is_in_ci(os.environ),
    )
    return asyncio.run(runs_headless.run_headless(settings, job))
