"""`tower configure`: how a session works from its next run on."""

import asyncio
from typing import Any

import click

from switchtower.cli import arguments, console


@click.command()
@click.argument("session")
@arguments.text_option("--provider", "The model provider, or one of the configured models.")
@arguments.text_option("--model", "One of the provider's models.")
@arguments.policy("What it may do unasked")
@arguments.thinking("How long the model thinks, where it can")
@click.option("--title", metavar="TEXT", callback=arguments.sendable_option, help="What the session is called.")
@arguments.token
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
    console.say(f"configured: {', '.join(f'{name}={value}' for name, value in wanted.items())}")
    if wanted.get("policy") == "yolo":
        console.say("warning: from its next run on this session asks nobody about anything", "yellow")
    return console.Exit.OK


async def _configure(meant: str, wanted: dict[str, Any], token: str | None) -> None:
    from switchtower.cli import lookup

    async with lookup.opened(meant, token) as (client, session_id):
        await client.configure(session_id, **wanted)
