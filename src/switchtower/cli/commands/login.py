"""`tower login` and `tower logout`: a provider's key, kept by the system's keyring or in a file of the owner's."""

import asyncio
import os
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console

if TYPE_CHECKING:
    from switchtower import config
    from switchtower.models.catalog import LoginTarget


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
    from switchtower.cli import secret_input
    from switchtower.client import errors

    settings = config.load()
    target = find_target(settings, provider)
    key = secret_input.read_key(f"Key of {provider} (not shown): ")
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
    from switchtower.models.key_store import KeyStore, KeyStoreError

    try:
        place = KeyStore(config.load().folders.config).remove(provider)
    except KeyStoreError as problem:
        raise errors.ClientError(problem.message, hint=problem.hint) from None
    if place is None:
        raise errors.ClientError(f"no key of `{provider}` is stored", hint="see `tower models` for where keys come from")
    console.print_line(f"removed the key of {provider} from {_describe_place(place)}")
    return console.ExitStatus.OK


def find_target(settings: "config.Settings", provider: str) -> "LoginTarget":
    """What a key of this provider is for. Raises `ClientError`."""
    from switchtower.client import errors
    from switchtower.core.errors import CoreError
    from switchtower.models.catalog import Catalog

    try:
        return Catalog(settings.models, os.environ).find_login_target(provider)
    except CoreError as problem:
        raise errors.ClientError(problem.detail or problem.message, hint=problem.hint) from None


async def verify_key(settings: "config.Settings", target: "LoginTarget", key: str, model: str | None) -> str | None:
    """What one small call with this key says; None when it succeeds."""
    from switchtower.cli.settingup import trial

    console.print_line(f"testing the key of {target.name} with one small call …", "dim")
    environ = {**os.environ, target.variable: key}
    tried = await trial.try_model(settings, target.make_trial_tables(settings.models), target.name, model, environ)
    return None if tried.problem is None else tried.problem.replace(key, "[the key]")


def store_key(settings: "config.Settings", target: "LoginTarget", key: str) -> str:
    """Keeps the key; where, for people. Raises `ClientError`."""
    from switchtower.client import errors
    from switchtower.models.key_store import FILE, KeyStore, KeyStoreError

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
