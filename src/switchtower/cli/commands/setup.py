"""`tower setup` makes the choices of a first start, at the terminal or from flags; `tower login` and `tower logout` store and
remove a provider's key in the system's keyring or in a file of the owner."""

import asyncio
import os
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from switchtower import config
    from switchtower.cli.configuration.setup_questions import ModelTrial, ProviderCandidates, SetupAnswers, SetupQuestion
    from switchtower.models.entries import LoginTarget


_SKIP_WORDS = ("s", "skip")


@click.command()
@arguments.text_option("--provider", "Who serves, as the list of what was found names it.")
@arguments.text_option("--model", "One of the provider's models; its usual one by default.")
@arguments.policy_option("What sessions may do unasked")
@click.option("--yes", is_flag=True, help="Ask nothing: what no flag says is taken as it would be offered.")
@click.option("--no-verify", is_flag=True, help="Write it without a call of the model.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: what was written, and where.")
def setup(provider: str | None, model: str | None, policy: str | None, yes: bool, no_verify: bool, as_json: bool) -> int:
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
      tower setup --yes --provider ollama --model qwen3 --no-verify
    """
    from switchtower import config
    from switchtower.cli.configuration.setup_questions import SetupAnswers
    from switchtower.cli.terminal import user_input

    interactive = not yes and user_input.is_interactive()
    if not (interactive or yes or provider or model or policy):
        raise click.UsageError("there is no terminal to ask at; hint: add `--yes`, or name a `--provider`")
    given = SetupAnswers(provider, model, policy)
    return asyncio.run(_SetupWizard(config.load(), given, interactive=interactive, tests=not no_verify, as_json=as_json).run())


def run_first_setup(settings: "config.Settings") -> int:
    """Runs the setup if nothing is configured yet and a user is at the terminal. Returns the exit code."""
    from switchtower.cli.configuration import setup_questions
    from switchtower.cli.configuration.setup_questions import SetupAnswers
    from switchtower.cli.terminal import user_input

    if not user_input.is_interactive() or not setup_questions.is_first_start(settings):
        return console.ExitStatus.OK
    console.print_line("this is the first start here, so two or three questions; `s` skips them")
    return asyncio.run(_SetupWizard(settings, SetupAnswers(), interactive=True, tests=True, as_json=False).run())


class _InputClosed(Exception):
    """The user closed the terminal's input."""


class _SetupSkipped(Exception):
    pass


class _SetupWizard:
    def __init__(
        self, settings: "config.Settings", given: "SetupAnswers", *, interactive: bool, tests: bool, as_json: bool
    ) -> None:
        self._settings = settings
        self._given = given
        self._interactive = interactive
        self._tests = tests
        self._as_json = as_json

    async def run(self) -> int:
        from switchtower.cli import signals
        from switchtower.cli.configuration import setup_questions

        with signals.catch_interrupts() as interrupted:
            try:
                return await signals.run_unless_interrupted(interrupted, self._run_steps())
            except (signals.Interrupted, _InputClosed):
                console.print_line("left; nothing was changed")
                return console.ExitStatus.CANCELLED
            except _SetupSkipped:
                setup_questions.record_skip(self._settings)
                console.print_line("skipped; hint: `tower setup` begins it again")
                return console.ExitStatus.OK

    async def _run_steps(self) -> int:
        from switchtower.cli.configuration import setup_questions

        self._found = found = await setup_questions.find_candidates(self._settings, os.environ)
        self._check_provider(found)
        _print_candidates(found, listed=not self._interactive)
        while True:
            answers = await self._collect_answers(found)
            found = self._found
            trial = await self._try_answers(found, answers)
            if trial is None or trial.is_good:
                return self._write(found, answers, trial)
            console.print_error(trial.problem or "the test failed")
            if not self._interactive:
                console.print_line("nothing was written; hint: `--no-verify` writes it all the same")
                return console.ExitStatus.FAILED
            match (await self._read_line("  t try again · w write it all the same · Enter choose anew [C] ")).lower():
                case "w":
                    return self._write(found, answers, trial)
                case "t":
                    self._given = answers
                case _:
                    from switchtower.cli.configuration.setup_questions import SetupAnswers

                    self._given = SetupAnswers(policy=answers.policy)

    def _check_provider(self, found: "ProviderCandidates") -> None:
        """Raises an error with the catalog's reason if the requested provider is not available."""
        from switchtower.client import errors

        provider = self._given.provider
        if provider is None or found.get(provider) is not None:
            return
        reason = dict(found.missing).get(provider)
        if reason is not None:
            raise errors.ClientError(f"`{provider}` cannot be used: {reason}")
        names = ", ".join(f"`{candidate.name}`" for candidate in found.candidates)
        raise errors.ClientError(f"`{provider}` was not found", hint=f"use one of {names}")

    async def _collect_answers(self, found: "ProviderCandidates") -> "SetupAnswers":
        from switchtower.cli.configuration import setup_questions
        from switchtower.client import errors

        answers, policy = self._given, self._settings.policy
        if not self._interactive:
            try:
                return setup_questions.apply_defaults(found, answers, policy=policy)
            except setup_questions.InvalidSetupAnswer as problem:
                raise errors.ClientError(str(problem), hint="name one with `--model`") from None
        while (question := setup_questions.get_next_question(found, answers, policy=policy)) is not None:
            answers = await self._ask(question, answers)
            if answers.provider in found.keyless:
                if not await self._read_and_store_key(answers.provider):
                    answers = self._given
                found = self._found = await setup_questions.find_candidates(self._settings, os.environ)
        return answers

    async def _read_and_store_key(self, provider: str) -> bool:
        """Reads a key like `tower login`, and returns whether it was stored."""
        from switchtower.cli.terminal import user_input

        target = find_target(self._settings, provider)
        key = await asyncio.to_thread(user_input.read_key, f"  Key of {provider} (not shown): ")
        if self._tests and (problem := await verify_key(self._settings, target, key, None)) is not None:
            console.print_error(f"the key was not stored: {problem}")
            return False
        console.print_line(store_key(self._settings, target, key))
        return True

    async def _ask(self, question: "SetupQuestion", answers: "SetupAnswers") -> "SetupAnswers":
        from switchtower.cli.configuration import setup_questions

        console.print_line(question.text)
        width = max((len(option.value) for option in question.options), default=0)
        for number, option in enumerate(question.options, 1):
            console.print_line(f"  {number:>2} {option.value:<{width}}  {option.note}".rstrip())
        usual = f" [{question.usual}]" if question.usual is not None else ""
        while True:
            said = await self._read_line(f"  {question.name}{usual} (s skips the set-up) ")
            if said.lower() in _SKIP_WORDS:
                raise _SetupSkipped
            try:
                return setup_questions.apply_answer(answers, question, said)
            except setup_questions.InvalidSetupAnswer as problem:
                console.print_line(f"  {problem}", "yellow")

    async def _read_line(self, prompt: str) -> str:
        from switchtower.cli.terminal import user_input

        typed = await user_input.read_line(prompt)
        if typed is None:
            raise _InputClosed
        return typed.strip()

    async def _try_answers(self, found: "ProviderCandidates", answers: "SetupAnswers") -> "ModelTrial | None":
        """Tests the chosen model with one call; None when the user skips the test."""
        if not self._tests or answers.provider is None:
            return None
        from switchtower.cli.configuration import setup_questions

        models = setup_questions.build_model_tables(self._settings, answers, found.get(answers.provider))
        if answers.provider != "demo":
            console.print_line(f"testing {answers.provider} {answers.model or ''} with one small call …", "dim")
        return await setup_questions.try_model(self._settings, models, answers.provider, answers.model, os.environ)

    def _write(self, found: "ProviderCandidates", answers: "SetupAnswers", trial: "ModelTrial | None") -> int:
        from switchtower import config
        from switchtower.cli.configuration import setup_questions
        from switchtower.client import discovery, errors

        assert answers.provider is not None, "all was answered"
        try:
            file = setup_questions.write_answers(self._settings, answers, found.get(answers.provider))
        except OSError as problem:
            raise errors.ClientError(
                f"cannot write `{self._settings.config_file}`: {problem.strerror or problem}", hint="see who owns its folder"
            ) from None
        tested = trial is not None and trial.was_made and trial.is_good
        if self._as_json:
            import msgspec

            written = {"file": str(file), "provider": answers.provider, "model": answers.model, "policy": answers.policy}
            output.write_line(msgspec.json.encode({**written, "tested": tested}))
        if tested and trial is not None:
            console.print_line(f"it answers ({trial.seconds:.1f} s)", "green")
        model = f" {answers.model}" if answers.model else ""
        chosen = "the demo model answers at a terminal until a model is configured" if answers.provider == "demo" else None
        console.print_line(f"wrote {file}: {chosen or answers.provider}{model}, policy {answers.policy}")
        for name in ("provider", "model", "policy"):
            if os.environ.get(f"TOWER_{name.upper()}"):
                console.print_line(f"warning: `TOWER_{name.upper()}` is set, and goes before the file", "yellow")
        if answers.policy == "yolo":
            console.print_line("warning: sessions ask nobody about anything", "yellow")
        if discovery.needs_restart(config.load()):
            console.print_line("the daemon was started before config.toml changed: run `tower restart`", "yellow")
        return console.ExitStatus.OK


def _print_candidates(found: "ProviderCandidates", *, listed: bool) -> None:
    """Prints the providers that were found. `listed` means that no question follows that lists them."""
    if listed:
        console.print_line("found:")
        width = max(len(candidate.name) for candidate in found.candidates)
        for candidate in found.candidates:
            model = f" ({candidate.model})" if candidate.model else ""
            console.print_line(f"  {candidate.name:<{width}}  {candidate.why}{model}")
    if found.missing:
        console.print_line(
            f"not usable yet: {', '.join(name for name, _ in found.missing)}; hint: `tower models` says why", "dim"
        )


@click.command()
@click.argument("provider")
@arguments.text_option("--model", "The model that the key is tested with; the provider's usual one by default.")
@click.option("--no-verify", is_flag=True, help="Store the key without a call of the model.")
def login(provider: str, model: str | None, no_verify: bool) -> int:
    """Store the key of PROVIDER, which is a provider or an entry of `[models]`, see `tower models`.

    The key is asked for and not shown while you paste it; without a terminal it is read from stdin. One small call tests it. It
    goes into the system keyring, or, where none works, into `keys.json` in the configuration folder, which only you can read. A
    running daemon uses it at once. It is sent only to the address that the provider has now. A variable such as
    `OPENAI_API_KEY` goes before a stored key.

    \b
    Exit codes:
      0 stored, 1 the test failed or the key cannot be stored, 64 wrong usage

    \b
    Example:
      tower login anthropic
      pass show openai | tower login openai
    """
    from switchtower import config
    from switchtower.cli.terminal import user_input
    from switchtower.client import errors

    settings = config.load()
    target = find_target(settings, provider)
    key = user_input.read_key(f"Key of {provider} (not shown): ")
    if not no_verify and (problem := asyncio.run(verify_key(settings, target, key, model))) is not None:
        raise errors.ClientError(f"the key was not stored: {problem}", hint="`--no-verify` stores it without a test")
    console.print_line(store_key(settings, target, key))
    if variable := next((name for name in target.variables if os.environ.get(name)), None):
        console.print_line(f"`{variable}` is set in this shell and goes before the stored key", "yellow")
    return console.ExitStatus.OK


@click.command()
@click.argument("provider")
def logout(provider: str) -> int:
    """Remove the key of PROVIDER that `tower login` stored. Variables and the configuration file stay as they are.

    \b
    Example:
      tower logout anthropic
    """
    from switchtower import config
    from switchtower.client import errors
    from switchtower.models.keys import KeyStore, KeyStoreError

    try:
        place = KeyStore(config.load().folders.config).remove(provider)
    except KeyStoreError as problem:
        raise errors.ClientError(problem.message, hint=problem.hint) from None
    if place is None:
        raise errors.ClientError(f"no key of `{provider}` is stored", hint="see `tower models` for where keys come from")
    console.print_line(f"removed the key of {provider} from {_describe_place(place)}")
    return console.ExitStatus.OK


def find_target(settings: "config.Settings", provider: str) -> "LoginTarget":
    """Returns the target of a key of this provider. Raises `ClientError`."""
    from switchtower.client import errors
    from switchtower.core.errors import CoreError
    from switchtower.models.catalog import Catalog

    try:
        return Catalog(settings.models, os.environ).find_login_target(provider)
    except CoreError as problem:
        raise errors.ClientError(problem.detail or problem.message, hint=problem.hint) from None


async def verify_key(settings: "config.Settings", target: "LoginTarget", key: str, model: str | None) -> str | None:
    """Tests the key with one small call and returns the problem; None when it succeeds."""
    from switchtower.cli.configuration import setup_questions

    console.print_line(f"testing the key of {target.name} with one small call …", "dim")
    environ = {**os.environ, target.variable: key}
    tried = await setup_questions.try_model(settings, target.make_trial_tables(settings.models), target.name, model, environ)
    return None if tried.problem is None else tried.problem.replace(key, "[the key]")


def store_key(settings: "config.Settings", target: "LoginTarget", key: str) -> str:
    """Stores the key and describes the location for the user. Raises `ClientError`."""
    from switchtower.client import errors
    from switchtower.models.keys import FILE, KeyStore, KeyStoreError

    try:
        place = KeyStore(settings.folders.config).write(target.name, key, target.address)
    except KeyStoreError as problem:
        raise errors.ClientError(problem.message, hint=problem.hint) from None
    if place == "keyring":
        return f"stored the key of {target.name} in {_describe_place(place)}"
    file = settings.folders.config / FILE
    return f"no system keyring works here: stored the key of {target.name} in {file}, which only you can read"


def _describe_place(place: str) -> str:
    return "the system keyring" if place == "keyring" else "the file of stored keys"
