"""`tower setup`: the choices of a first start, asked at the terminal or given as flags."""

import asyncio
import os
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from switchtower import config
    from switchtower.cli.settingup.asking import Answers, Question
    from switchtower.cli.settingup.found import Found
    from switchtower.cli.settingup.trial import Trial

_SKIP = ("s", "skip")


@click.command()
@arguments.text_option("--provider", "Who serves, as the list of what was found names it.")
@arguments.text_option("--model", "One of the provider's models; its usual one by default.")
@arguments.policy("What sessions may do unasked")
@click.option("--yes", is_flag=True, help="Ask nothing: what no flag says is taken as it would be offered.")
@click.option("--no-test", is_flag=True, help="Write it without a call of the model.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: what was written, and where.")
def setup(provider: str | None, model: str | None, policy: str | None, yes: bool, no_test: bool, as_json: bool) -> int:
    """Choose the model and the policy from what is found on this machine, test the key, and write the configuration file.

    What was found is listed: keys in the environment, models of the file, servers such as Ollama, and the demo model, which needs
    nothing. The key is tested with one small call and never shown. Without a terminal, or with --yes, nothing is asked, and a
    test that fails writes nothing. Everything else in the file stays as it is.

    \b
    Exit codes:
      0 written or skipped, 1 the test failed or the file cannot be written, 2 left, 64 wrong usage

    \b
    Example:
      tower setup
      tower setup --yes --provider anthropic --policy ask
      tower setup --yes --provider ollama --model qwen3 --no-test
    """
    from switchtower import config
    from switchtower.cli import keyboard
    from switchtower.cli.settingup.asking import Answers

    interactive = not yes and keyboard.is_possible()
    if not (interactive or yes or provider or model or policy):
        raise click.UsageError("there is no terminal to ask at; hint: add `--yes`, or name a `--provider`")
    given = Answers(provider, model, policy)
    return asyncio.run(_SetUp(config.load(), given, interactive=interactive, tests=not no_test, as_json=as_json).go())


def at_first_start(settings: "config.Settings") -> int:
    """Asks where nobody has configured anything yet and somebody is there to ask; the exit code. Elsewhere nothing happens."""
    from switchtower.cli import keyboard
    from switchtower.cli.settingup import writing
    from switchtower.cli.settingup.asking import Answers

    if not keyboard.is_possible() or not writing.is_first_start(settings):
        return console.Exit.OK
    console.say("this is the first start here, so two or three questions; `s` skips them")
    return asyncio.run(_SetUp(settings, Answers(), interactive=True, tests=True, as_json=False).go())


class _Left(Exception):
    """Somebody closed the terminal's input."""


class _Skipped(Exception):
    pass


class _SetUp:
    def __init__(self, settings: "config.Settings", given: "Answers", *, interactive: bool, tests: bool, as_json: bool) -> None:
        self._settings = settings
        self._given = given
        self._interactive = interactive
        self._tests = tests
        self._as_json = as_json

    async def go(self) -> int:
        from switchtower.cli import signals
        from switchtower.cli.settingup import writing

        with signals.interruption() as interrupted:
            try:
                return await signals.unless(interrupted, self._go())
            except (signals.Interrupted, _Left):
                console.say("left; nothing was changed")
                return console.Exit.CANCELLED
            except _Skipped:
                writing.skip(self._settings)
                console.say("skipped; hint: `tower setup` begins it again")
                return console.Exit.OK

    async def _go(self) -> int:
        from switchtower.cli.settingup import found as finding

        self._found = found = await finding.look(self._settings, os.environ)
        self._check(found)
        _tell(found, listed=not self._interactive)
        while True:
            answers = await self._answers(found)
            found = self._found
            trial = await self._try(found, answers)
            if trial is None or trial.is_good:
                return self._write(found, answers, trial)
            console.fail(trial.problem or "the test failed")
            if not self._interactive:
                console.say("nothing was written; hint: `--no-test` writes it all the same")
                return console.Exit.FAILED
            match (await self._line("  t try again · w write it all the same · Enter choose anew [C] ")).lower():
                case "w":
                    return self._write(found, answers, trial)
                case "t":
                    self._given = answers
                case _:
                    from switchtower.cli.settingup.asking import Answers

                    self._given = Answers(policy=answers.policy)

    def _check(self, found: "Found") -> None:
        """A provider that was named must be there; why it is not, the catalog knows."""
        from switchtower.client import errors

        provider = self._given.provider
        if provider is None or found.get(provider) is not None:
            return
        reason = dict(found.missing).get(provider)
        if reason is not None:
            raise errors.ClientError(f"`{provider}` cannot be used: {reason}")
        names = ", ".join(f"`{candidate.name}`" for candidate in found.candidates)
        raise errors.ClientError(f"`{provider}` was not found", hint=f"use one of {names}")

    async def _answers(self, found: "Found") -> "Answers":
        from switchtower.cli.settingup import asking
        from switchtower.cli.settingup import found as finding
        from switchtower.client import errors

        answers, policy = self._given, self._settings.policy
        if not self._interactive:
            try:
                return asking.with_usual(found, answers, policy=policy)
            except asking.NoAnswer as problem:
                raise errors.ClientError(str(problem), hint="name one with `--model`") from None
        while (question := asking.next_question(found, answers, policy=policy)) is not None:
            answers = await self._ask(question, answers)
            if answers.provider in found.keyless:
                if not await self._take_key(answers.provider):
                    answers = self._given
                found = self._found = await finding.look(self._settings, os.environ)
        return answers

    async def _take_key(self, provider: str) -> bool:
        """Reads a key as `tower login` does; whether it was stored."""
        from switchtower.cli import secret_input
        from switchtower.cli.commands import login

        target = login.find_target(self._settings, provider)
        key = await asyncio.to_thread(secret_input.read_key, f"  Key of {provider} (not shown): ")
        if self._tests and (problem := await login.verify(self._settings, target, key, None)) is not None:
            console.fail(f"the key was not stored: {problem}")
            return False
        console.say(login.store(self._settings, target, key))
        return True

    async def _ask(self, question: "Question", answers: "Answers") -> "Answers":
        from switchtower.cli.settingup import asking

        console.say(question.text)
        width = max((len(option.value) for option in question.options), default=0)
        for number, option in enumerate(question.options, 1):
            console.say(f"  {number:>2} {option.value:<{width}}  {option.note}".rstrip())
        usual = f" [{question.usual}]" if question.usual is not None else ""
        while True:
            said = await self._line(f"  {question.name}{usual} (s skips the set-up) ")
            if said.lower() in _SKIP:
                raise _Skipped
            try:
                return asking.answered(answers, question, said)
            except asking.NoAnswer as problem:
                console.say(f"  {problem}", "yellow")

    async def _line(self, asked_with: str) -> str:
        from switchtower.cli import keyboard

        typed = await keyboard.line(asked_with)
        if typed is None:
            raise _Left
        return typed.strip()

    async def _try(self, found: "Found", answers: "Answers") -> "Trial | None":
        """None where nobody wants it."""
        if not self._tests or answers.provider is None:
            return None
        from switchtower.cli.settingup import trial, writing

        models = writing.tables(self._settings, answers, found.get(answers.provider))
        if answers.provider != "demo":
            console.say(f"testing {answers.provider} {answers.model or ''} with one small call …", "dim")
        return await trial.call(self._settings, models, answers.provider, answers.model, os.environ)

    def _write(self, found: "Found", answers: "Answers", trial: "Trial | None") -> int:
        from switchtower import config
        from switchtower.cli.settingup import writing
        from switchtower.client import discover, errors

        assert answers.provider is not None, "all was answered"
        try:
            file = writing.write(self._settings, answers, found.get(answers.provider))
        except OSError as problem:
            raise errors.ClientError(
                f"cannot write `{self._settings.config_file}`: {problem.strerror or problem}", hint="see who owns its folder"
            ) from None
        tested = trial is not None and trial.was_made and trial.is_good
        if self._as_json:
            import msgspec

            written = {"file": str(file), "provider": answers.provider, "model": answers.model, "policy": answers.policy}
            output.line(msgspec.json.encode({**written, "tested": tested}))
        if tested and trial is not None:
            console.say(f"it answers ({trial.seconds:.1f} s)", "green")
        model = f" {answers.model}" if answers.model else ""
        chosen = "the demo model answers at a terminal until a model is configured" if answers.provider == "demo" else None
        console.say(f"wrote {file}: {chosen or answers.provider}{model}, policy {answers.policy}")
        for name in ("provider", "model", "policy"):
            if os.environ.get(f"TOWER_{name.upper()}"):
                console.say(f"warning: `TOWER_{name.upper()}` is set, and goes before the file", "yellow")
        if answers.policy == "yolo":
            console.say("warning: sessions ask nobody about anything", "yellow")
        if discover.needs_restart(config.load()):
            console.say("the daemon was started before config.toml changed: run `tower restart`", "yellow")
        return console.Exit.OK


def _tell(found: "Found", *, listed: bool) -> None:
    """`listed`: no question follows that lists it."""
    if listed:
        console.say("found:")
        width = max(len(candidate.name) for candidate in found.candidates)
        for candidate in found.candidates:
            model = f" ({candidate.model})" if candidate.model else ""
            console.say(f"  {candidate.name:<{width}}  {candidate.why}{model}")
    if found.missing:
        console.say(f"not usable yet: {', '.join(name for name, _ in found.missing)}; hint: `tower models` says why", "dim")
