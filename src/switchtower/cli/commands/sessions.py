"""Commands that list, search, export and delete sessions: `tower sessions`, `show`, `search`, `export` and `delete`."""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import arguments, console, output, table
from switchtower.presentation import formats

if TYPE_CHECKING:
    from switchtower.client.client import DaemonClient
    from switchtower.client.open_requests import OpenRequest
    from switchtower.protocols.push import extension_messages, listing_messages, messages


if TYPE_CHECKING:
    TerminalsBySession = Mapping[str, extension_messages.TerminalListing]
    RequestsBySession = Mapping[str, Sequence[OpenRequest]]
    NodeNameBySession = Mapping[str, str]
    CardsBySession = Mapping[str, listing_messages.Card]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many at most.")
def sessions(as_json: bool, limit: int) -> int:
    """List the sessions, the last used first.

    The sandbox of each session is shown, and of a session that a run has started, whose child it is. Of a program in a terminal,
    the command is shown too, or its name. Where several nodes share one store, the
    node that a session has as its home is shown. A session that waits for a decision or an answer has what is asked below it. The
    end of an id is enough to name a session in other commands, and `last` is the first one listed.

    \b
    Example:
      tower sessions --limit 5
    """
    import msgspec

    listed, programs, waits, homes, cards = asyncio.run(_fetch_sessions(limit))
    if as_json:
        output.write_line(msgspec.json.encode([_describe_session(session, programs, waits, homes, cards) for session in listed]))
        return console.ExitStatus.OK
    if not listed:
        console.print_line('no sessions yet; hint: start one with `tower run --headless "…"`')
    for session, row in zip(
        listed, table.format_rows(_format_session_rows(listed, programs, homes, cards, now=time.time())), strict=True
    ):
        output.write_line(console.escape_unprintable(row))
        for line in _format_requests(waits.get(session.sessionId, ())):
            output.write_line(console.escape_unprintable(line))
    return console.ExitStatus.OK


def _format_requests(requests: "Sequence[OpenRequest]") -> list[str]:
    from switchtower.client import open_requests

    return [f"  ? {open_requests.format_request(one)}" for one in requests]


async def _fetch_sessions(
    limit: int,
) -> "tuple[Sequence[messages.ListedSession], TerminalsBySession, RequestsBySession, NodeNameBySession, CardsBySession]":
    from switchtower import config
    from switchtower.client import open_requests
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        listed = await client.list_sessions(limit)
        programs = {program.sessionId: program for program in await client.list_terminals(limit)}
        waits = await open_requests.find_requests_by_session(client, [one for one in listed if one.sessionId not in programs])
        cards = {card.sessionId: card for card in await client.list_cards(limit)} if client.supports("cards") else {}
        return listed, programs, waits, await _fetch_session_nodes(client, cards), cards


async def _fetch_session_nodes(client: "DaemonClient", cards: "CardsBySession") -> "NodeNameBySession":
    """Returns the name of each session's node; empty with a single node."""
    from switchtower.client import node_names

    known = await node_names.fetch_node_names(client)
    return {session_id: known.format_owner(card.home) for session_id, card in cards.items()} if known.has_several else {}


def _describe_session(
    session: "messages.ListedSession",
    programs: "TerminalsBySession",
    requests: "RequestsBySession",
    node_names: "NodeNameBySession",
    cards: "CardsBySession",
) -> "messages.ListedSession | dict[str, Any]":
    import msgspec

    more: dict[str, Any] = {}
    if (program := programs.get(session.sessionId)) is not None:
        more["terminal"] = {name: value for name, value in msgspec.to_builtins(program).items() if name != "sessionId"}
    if asked := requests.get(session.sessionId):
        more["waiting"] = msgspec.to_builtins(asked)
    if (card := cards.get(session.sessionId)) is not None:
        more["sandbox"] = card.sandbox
        more |= {"childOf": card.childOf} if card.childOf else {}
    if node_names:
        more["node"] = node_names.get(session.sessionId) or None
    return {**msgspec.to_builtins(session), **more} if more else session


def _format_session_rows(
    listed: "Sequence[messages.ListedSession]",
    programs: "TerminalsBySession",
    node_names: "NodeNameBySession",
    cards: "CardsBySession",
    *,
    now: float,
) -> list[tuple[str, ...]]:
    has_bounds = any(card.sandbox or card.childOf for card in cards.values())
    return [
        (
            session.sessionId,
            session.state,
            formats.format_age(now - session.updatedAt / 1000),
            *((node_names.get(session.sessionId) or "-",) if node_names else ()),
            *((_format_bounds(cards.get(session.sessionId)),) if has_bounds else ()),
            session.repo.currentBranch,
            session.repo.rootPath,
            *((_format_program(programs.get(session.sessionId)),) if programs else ()),
        )
        for session in listed
    ]


def _format_bounds(card: "listing_messages.Card | None") -> str:
    if card is None:
        return "-"
    return f"{card.sandbox or '-'}, child of {card.childOf[-6:]}" if card.childOf else card.sandbox or "-"


def _format_program(program: "extension_messages.TerminalListing | None") -> str:
    if program is None:
        return ""
    title = " ".join(program.title.split())
    named = title if title.startswith(program.tool) else f"{program.tool}: {title}"
    where = f" on {program.host}" if program.host else ""
    how = f" (exit code {program.exitCode})" if program.exitCode else f" (waits: {program.waitsFor})" if program.waitsFor else ""
    return f"{named}{where}{how}"


@click.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@arguments.token_option
def show(session: str, as_json: bool, token: str | None) -> int:
    """Print what a session is and does: its model and policy, what it took so far, what waits, what can be undone.

    SESSION is an id, a unique beginning or end of one, or `last`. Its conversation is printed by `tower attach`.

    \b
    Example:
      tower show last
      tower show last --json
    """
    about, waits, node = asyncio.run(_fetch_session(session, token))
    if as_json:
        import msgspec

        output.write_line(
            msgspec.json.encode({**msgspec.to_builtins(about), "waiting": msgspec.to_builtins(waits)} if waits else about)
        )
        return console.ExitStatus.OK

    from switchtower.presentation import session_details

    for line in table.format_fields(session_details.list_session_details(about, waits, node=node)):
        output.write_line(console.escape_unprintable(line))
    return console.ExitStatus.OK


async def _fetch_session(session_ref: str, token: str | None) -> "tuple[extension_messages.SessionInfo, list[OpenRequest], str]":
    from switchtower.cli import session_lookup
    from switchtower.client import node_names, open_requests

    async with session_lookup.open_session(session_ref, token) as (client, session_id):
        about = await client.get_session(session_id)
        node = (await node_names.fetch_node_names(client)).format_owner(about.home) if about.home else ""
        if about.activeRunId is None or about.terminal is not None:
            return about, [], node  # a program shows its question in its terminal
        return about, (await open_requests.find_open_requests(client, session_id)).list_requests(), node


@click.command()
@click.argument("text", metavar="TEXT...", nargs=-1, required=True)
@click.option("--session", metavar="SESSION", help="Only in this one.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="How many at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@arguments.token_option
def search(text: tuple[str, ...], session: str | None, limit: int, as_json: bool, token: str | None) -> int:
    """Find words in all sessions: what people and models said, commands, results, titles.

    All words have to be there, in any order; the last may be the beginning of one, and words in double quotes stand together.
    Exit code 0 when something was found, 1 when not.

    \b
    Example:
      tower search flaky test
      tower search '"connection refused"' --limit 5
    """
    return asyncio.run(_search(" ".join(text), session, limit, token, as_json=as_json))


async def _search(text: str, session_ref: str | None, limit: int, token: str | None, *, as_json: bool) -> int:
    import msgspec

    from switchtower import config
    from switchtower.cli import session_lookup
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        session_id = await session_lookup.find_session_id(client, session_ref) if session_ref is not None else None
        if session_id is not None and token is not None:
            client.remember_attach_token(session_id, token)
        hits = await client.search(text, limit, session_id=session_id)
    if as_json:
        output.write_line(msgspec.json.encode(hits))
    else:
        now = time.time()
        for hit in hits:
            said = " ".join(hit.snippet.split())
            title = f"  {hit.title}" if hit.title else ""
            output.write_line(
                console.escape_unprintable(f"{hit.sessionId}  {formats.format_age(now - hit.ts / 1_000)} ago  {hit.kind}{title}")
            )
            output.write_line(console.escape_unprintable(f"    {said}"))
        if not hits:
            console.print_line("nothing was found; hint: fewer words, or only the beginning of the last one")
    return console.ExitStatus.OK if hits else console.ExitStatus.FAILED


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
    from switchtower.cli import atomic_file, session_lookup, signals
    from switchtower.cli.export import document
    from switchtower.client import errors

    with signals.catch_interrupts() as interrupted:
        try:
            async with session_lookup.open_session(session_ref, token) as (client, session_id):
                if file is None:
                    await signals.run_unless_interrupted(
                        interrupted, document.write_document(client, session_id, form, output.write)
                    )
                    return console.ExitStatus.OK
                try:
                    with atomic_file.open_atomic(file, mode=0o600) as opened:
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


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first.")
@arguments.token_option
def delete(sessions: tuple[str, ...], yes: bool, token: str | None) -> int:
    """Delete sessions for good, with all that the journal has of them. The files that they worked on stay.

    SESSION is an id, a unique beginning or end of one, or `last`. What runs is not deleted: cancel it first.

    \b
    Example:
      tower delete last
      tower delete 3QV6SB3 1CKSY4 --yes
    """
    return asyncio.run(_delete(sessions, token, yes=yes))


async def _delete(session_ref: tuple[str, ...], token: str | None, *, yes: bool) -> int:
    from switchtower import config
    from switchtower.cli import session_lookup
    from switchtower.client import errors
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        # All references are resolved before the first session is deleted, because `last` means another session afterwards.
        found = list(dict.fromkeys([await session_lookup.find_session_id(client, one) for one in session_ref]))
        for session_id in found:
            title = (await client.get_session(session_id)).title
            console.print_line(f"{session_id}  {title}")
        if not yes and not _confirm_deletion(len(found)):
            raise errors.ClientError("nothing was deleted", hint="say `y`, or give `--yes`")
        for session_id in found:
            if token is not None:
                client.remember_attach_token(session_id, token)
            await client.delete_session(session_id)
            console.print_line(f"deleted {session_id}")
    return console.ExitStatus.OK


def _confirm_deletion(count: int) -> bool:
    if not sys.stdin.isatty():
        return False
    what = "this session" if count == 1 else f"these {count} sessions"
    return input(f"delete {what} for good? [y/N] ").strip().lower() in ("y", "yes")
