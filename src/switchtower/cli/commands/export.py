"""`tower export`: a session as a document to keep, to read elsewhere or to hand on."""

import asyncio
from pathlib import Path

import click

from switchtower.cli import arguments, console, output

FORMATS = ("markdown", "html", "jsonl")
_BY_SUFFIX = {".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@click.command()
@click.argument("session")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), metavar="FORM", help=f"{', '.join(FORMATS)}; else as FILE's name says."
)
@click.option(
    "-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where to; stdout by default."
)
@arguments.token_option
def export(session: str, form: str | None, file: Path | None, token: str | None) -> int:
    """Write a session's conversation as Markdown, as one HTML page, or as the events themselves.

    SESSION is an id, a unique beginning or end of one, or `last`. A document holds what was said, thinking folded away, the calls
    of tools with their output, the approvals with who decided, and what it took. Of a program in a terminal it holds the last
    screen. With `jsonl` it is each event as the daemon sends it, one a line.

    FILE is readable by you alone, and is written whole or not at all. What is hidden in the journal, such as keys, is hidden here
    too; read a document before you hand it on all the same.

    \b
    Example:
      tower export last > session.md
      tower export last -o session.html
      tower export last --format jsonl | jq -r .type | sort | uniq -c
    """
    chosen = form or (_BY_SUFFIX.get(file.suffix.lower(), FORMATS[0]) if file is not None else FORMATS[0])
    return asyncio.run(_export(session, chosen, file, token))


async def _export(session_ref: str, form: str, file: Path | None, token: str | None) -> int:
    from switchtower.cli import lookup, signals, whole_file
    from switchtower.cli.exporting import document
    from switchtower.client import errors

    with signals.catch_interrupts() as interrupted:
        try:
            async with lookup.open_session(session_ref, token) as (client, session_id):
                if file is None:
                    await signals.run_unless_interrupted(
                        interrupted, document.write_document(client, session_id, form, output.write)
                    )
                    return console.ExitStatus.OK
                try:
                    with whole_file.open_atomic(file, mode=0o600) as opened:
                        await signals.run_unless_interrupted(
                            interrupted, document.write_document(client, session_id, form, opened.write)
                        )
                except OSError as problem:
                    raise errors.ClientError(
                        f"cannot write `{file}`: {problem.strerror or problem}", hint="give another file with `-o`"
                    ) from None
                console.print_line(f"wrote {file}")
                return console.ExitStatus.OK
        except signals.Interrupted:
            return console.ExitStatus.CANCELLED
