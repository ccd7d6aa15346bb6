"""`tower configure`: how a session works from its next run on."""

import asyncio
from typing import Any

import click

from switchtower.cli import arguments, console


@click.command()
@click.argument("session")
@arguments.text_option("--provider", "The model provider, or one of the configured models.")
@arguments.text_option("--model", "One of the provider's models.")
@arguments.policy_option("What it may do unasked")
@arguments.thinking_option("How long the model thinks, where it can")
@click.option("--title", metavar="TEXT", callback=arguments.validate_sendable, help="What the session is called.")
@arguments.token_option
def configure(session: str, token: str | None, **changes: str | None) -> int:
    """Change how a session works from its next run on. What is not named stays as it is.

    SESSION is an id, a unique beginning or end of one, or `last`; `tower show` prints how it is now.

    \b
    Example:
      tower configure last --policy auto --thinking high
      tower configure last --provider ollama --model qwen3
    """
    wanted = {name: value for name, value in changes.items() if value is not None}
    if not wanted:
        raise click.UsageError("nothing to change; hint: name something, such as `--policy ask`")
    asyncio.run(_configure(session, wanted, token))
    console.print_line(f"configured: {', '.join(f'{name}={value}' for name, value in wanted.items())}")
    if wanted.get("policy") == "yolo":
        console.print_line("warning: from its next run on this session asks nobody about anything", "yellow")
    return console.ExitStatus.OK


async def _configure(session_ref: str, wanted: dict[str, Any], token: str | None) -> None:
    from switchtower.cli import lookup

    async with lookup.open_session(session_ref, token) as (client, session_id):
        await client.configure_session(session_id, **wanted)
