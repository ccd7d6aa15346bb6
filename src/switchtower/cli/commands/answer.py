"""`tower answer`: what extensions and the agent ask, and the answer to it."""

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from switchtower.cli.replies import Reply
    from switchtower.client.client import Client
    from switchtower.client.dialogs import Dialog

_UNDER_WAY = ("running", "awaiting_approval")


class Given(NamedTuple):
    """What the command line answers; all of it None where it only asks what is open."""

    text: str | None
    confirmed: bool | None
    dismiss: bool
    json: str | None

    @property
    def is_nothing(self) -> bool:
        return self == Given(None, None, False, None)


class Waiting(NamedTuple):
    session_id: str
    dialog: "Dialog"


@click.command()
@click.argument("session", required=False)
@click.argument("value", required=False)
@click.option("--yes/--no", "confirmed", default=None, help="To a question that wants a yes or a no.")
@click.option("--dismiss", is_flag=True, help="Close it without an answer.")
@click.option("--json", "as_json", metavar="OBJECT", help="The whole answer, as an interview needs it; `-` reads it from stdin.")
@arguments.token
def answer(
    session: str | None, value: str | None, confirmed: bool | None, dismiss: bool, as_json: str | None, token: str | None
) -> int:
    """Answer what an extension or the agent asks. Without an answer, list what is asked and how to answer it.

    SESSION is an id, a unique beginning or end of one, or `last`; without it, the only session that asks. The id of a dialog
    does too, and then nothing else is answered. VALUE is an option, by its text or its number in the list, or a text; `-` reads
    it from stdin. The first answer counts, whoever gives it, and a question that nobody answers expires. At a terminal,
    `tower attach SESSION` asks question by question.

    \b
    An interview is answered with one object, by the ids of its questions:
      a text            "goal": "faster tests"
      one option        "scope": "as small as possible"
      several options   "files": ["a.py", "b.py"]
      yes or no         "plan": true

    \b
    Example:
      tower answer
      tower answer last 2
      tower answer last "Uncommitted changes (3 files)"
      tower answer --yes
      tower answer last --json '{"responses": {"goal": "faster tests", "plan": true}}'
      tower answer last --dismiss
    """
    given = Given(value, confirmed, dismiss, as_json)
    if sum((value is not None, confirmed is not None, dismiss, as_json is not None)) > 1:
        raise click.UsageError("VALUE, `--yes`, `--no`, `--dismiss` and `--json` exclude each other")
    return asyncio.run(_answer(session, given, token))


async def _answer(meant: str | None, given: Given, token: str | None) -> int:
    from switchtower import config
    from switchtower.client import errors
    from switchtower.client.client import Client

    dialog_id = None
    if meant is not None and meant.startswith("dlg_"):
        meant, dialog_id = None, meant
    reply = None if given.json is None else _from_json(given.json)
    text = None if given.text is None else _from_text(given.text)
    async with await Client.connect(config.load()) as client:
        if not client.offers("dialogs"):
            raise errors.DaemonTooOld("dialogs")
        waiting = [found for found in await _open(client, meant, token) if dialog_id in (None, found.dialog.dialog_id)]
        if given.is_nothing:
            _list(waiting)
            return console.Exit.OK
        match waiting:
            case [only]:
                await _submit(client, only, reply or _meant(only, given, text))
                return console.Exit.OK
            case []:
                raise errors.ClientError("no such question is open", hint="see `tower answer`")
            case _:
                names = ", ".join(f"{found.dialog.dialog_id} ({found.dialog.title})" for found in waiting[:5])
                raise errors.ClientError(
                    f"{len(waiting)} questions are open: {names}",
                    hint="name one: `tower answer SESSION …` or `tower answer dlg_… …`",
                )


def _from_text(text: str) -> str:
    import sys

    if text == "-":
        return sys.stdin.buffer.read().decode(errors="replace").removesuffix("\n")
    return arguments.sendable(text)


def _from_json(text: str) -> "Reply":
    import msgspec

    from switchtower.cli.replies import Reply

    try:
        given: Any = msgspec.json.decode(_from_text(text))
        if isinstance(given, dict) and len(given) == 1 and given.keys() <= set(Reply._fields) and given != {"dismissed": False}:
            return msgspec.convert([given.get(name, default) for name, default in Reply._field_defaults.items()], Reply)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise click.UsageError(f"`--json` cannot be read: {problem}") from None
    raise click.UsageError("`--json` is one object with one of `responses`, `value`, `confirmed` and `dismissed`")


async def _open(client: "Client", meant: str | None, token: str | None) -> list[Waiting]:
    from switchtower.cli import lookup

    if meant is not None:
        session_ids = [await lookup.session_id(client, meant)]
    else:
        listed = await client.list_sessions(lookup.MOST_LISTED)
        session_ids = [session.sessionId for session in listed if session.state in _UNDER_WAY]
    found = []
    for session_id in session_ids:
        if token is not None:
            client.remember(session_id, token)
        found += [Waiting(session_id, dialog) for dialog in await client.open_dialogs(session_id)]
    return found


def _list(waiting: list[Waiting]) -> None:
    from switchtower.cli import dialog_lines, dialog_prompt

    if not waiting:
        console.say("nobody is asked anything; hint: approvals are listed by `tower status`")
    for session_id, dialog in waiting:
        output.line(f"{session_id} {dialog.dialog_id} ({dialog_prompt.time_left(dialog)})")
        for line, _ in dialog_lines.lines(dialog):
            output.line(console.printable(line))
        for line in dialog_lines.form(dialog):
            output.line(console.printable(line))
        output.line(console.printable(f"  answer with {dialog_lines.how_to_answer(dialog, session_id)}; or `--dismiss`"))


def _meant(waiting: Waiting, given: Given, text: str | None) -> "Reply":
    """Raises `ClientError` when it is no answer to this dialog."""
    from switchtower.cli import dialog_lines, replies
    from switchtower.client import errors

    if given.dismiss:
        return replies.DISMISSED
    reply = replies.Reply(confirmed=given.confirmed) if text is None else replies.to_dialog(waiting.dialog, text)
    if reply is None:
        raise errors.ClientError(
            f"that is no answer to “{waiting.dialog.title}”, a `{waiting.dialog.method}`",
            hint=f"answer with {dialog_lines.how_to_answer(waiting.dialog, waiting.session_id)}",
        )
    return reply


async def _submit(client: "Client", waiting: Waiting, reply: "Reply") -> None:
    from switchtower.cli import dialog_lines, replies
    from switchtower.client import errors

    session_id, dialog = waiting
    if (problem := replies.problem(dialog, reply)) is not None:
        raise errors.ClientError(
            f"that is no answer to “{dialog.title}”, a `{dialog.method}`: {problem}",
            hint=f"answer with {dialog_lines.how_to_answer(dialog, session_id)}",
        )
    await client.answer_dialog(session_id, dialog.dialog_id, **reply._asdict())
    console.say(f"{'dismissed' if reply.dismissed else 'answered'}: {dialog.title} ({session_id})")
