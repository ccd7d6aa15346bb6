"""`tower answer`: lists the open dialogs of extensions and agents, and answers them."""

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from switchtower.client.client import DaemonClient
    from switchtower.client.frames import PushDialog
    from switchtower.presentation.dialog_form import DialogReply

_ACTIVE_STATES = ("running", "awaiting_approval")


class AnswerArguments(NamedTuple):
    """The answer from the command line; every field is None when the command only lists open dialogs."""

    text: str | None
    confirmed: bool | None
    dismiss: bool
    json: str | None

    @property
    def is_empty(self) -> bool:
        return self == AnswerArguments(None, None, False, None)


class SessionDialog(NamedTuple):
    session_id: str
    dialog: "PushDialog"


@click.command()
@click.argument("session", required=False)
@click.argument("value", required=False)
@click.option("--yes/--no", "confirmed", default=None, help="To a question that wants a yes or a no.")
@click.option("--dismiss", is_flag=True, help="Close it without an answer.")
@click.option("--json", "as_json", metavar="OBJECT", help="The whole answer, as an interview needs it; `-` reads it from stdin.")
@arguments.token_option
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
    given = AnswerArguments(value, confirmed, dismiss, as_json)
    if sum((value is not None, confirmed is not None, dismiss, as_json is not None)) > 1:
        raise click.UsageError("VALUE, `--yes`, `--no`, `--dismiss` and `--json` exclude each other")
    return asyncio.run(_answer(session, given, token))


async def _answer(session_ref: str | None, given: AnswerArguments, token: str | None) -> int:
    from switchtower import config
    from switchtower.client import errors
    from switchtower.client.client import DaemonClient

    dialog_id = None
    if session_ref is not None and session_ref.startswith("dlg_"):
        session_ref, dialog_id = None, session_ref
    reply = None if given.json is None else _parse_json_answer(given.json)
    text = None if given.text is None else _read_text_answer(given.text)
    async with await DaemonClient.connect(config.load()) as client:
        if not client.supports("dialogs"):
            raise errors.DaemonTooOld("dialogs")
        waiting = [
            found for found in await _find_open_dialogs(client, session_ref, token) if dialog_id in (None, found.dialog.dialog_id)
        ]
        if given.is_empty:
            _list_dialogs(waiting)
            return console.ExitStatus.OK
        match waiting:
            case [only]:
                await _submit_reply(client, only, reply or _make_reply(only, given, text))
                return console.ExitStatus.OK
            case []:
                raise errors.ClientError("no such question is open", hint="see `tower answer`")
            case _:
                names = ", ".join(f"{found.dialog.dialog_id} ({found.dialog.title})" for found in waiting[:5])
                raise errors.ClientError(
                    f"{len(waiting)} questions are open: {names}",
                    hint="name one: `tower answer SESSION …` or `tower answer dlg_… …`",
                )


def _read_text_answer(text: str) -> str:
    import sys

    if text == "-":
        return sys.stdin.buffer.read().decode(errors="replace").removesuffix("\n")
    return arguments.make_sendable(text)


def _parse_json_answer(text: str) -> "DialogReply":
    import msgspec

    from switchtower.presentation.dialog_form import DialogReply

    try:
        given: Any = msgspec.json.decode(_read_text_answer(text))
        if (
            isinstance(given, dict)
            and len(given) == 1
            and given.keys() <= set(DialogReply._fields)
            and given != {"dismissed": False}
        ):
            return msgspec.convert(
                [given.get(name, default) for name, default in DialogReply._field_defaults.items()], DialogReply
            )
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise click.UsageError(f"`--json` cannot be read: {problem}") from None
    raise click.UsageError("`--json` is one object with one of `responses`, `value`, `confirmed` and `dismissed`")


async def _find_open_dialogs(client: "DaemonClient", session_ref: str | None, token: str | None) -> list[SessionDialog]:
    from switchtower.cli import session_lookup

    if session_ref is not None:
        session_ids = [await session_lookup.find_session_id(client, session_ref)]
    else:
        listed = await client.list_sessions(session_lookup.MAX_LISTED)
        session_ids = [session.sessionId for session in listed if session.state in _ACTIVE_STATES]
    found = []
    for session_id in session_ids:
        if token is not None:
            client.remember_attach_token(session_id, token)
        found += [SessionDialog(session_id, dialog) for dialog in await client.list_open_dialogs(session_id)]
    return found


def _list_dialogs(waiting: list[SessionDialog]) -> None:
    from switchtower.cli.terminal import dialog_prompt
    from switchtower.presentation import dialog_form

    if not waiting:
        console.print_line("nobody is asked anything; hint: approvals are listed by `tower status`")
    for session_id, dialog in waiting:
        output.write_line(f"{session_id} {dialog.dialog_id} ({dialog_prompt.format_time_left(dialog)})")
        for line, _ in dialog_form.format_dialog(dialog):
            output.write_line(console.escape_unprintable(line))
        for line in dialog_form.format_interview(dialog):
            output.write_line(console.escape_unprintable(line))
        output.write_line(
            console.escape_unprintable(f"  answer with {dialog_form.format_answer_command(dialog, session_id)}; or `--dismiss`")
        )


def _make_reply(waiting: SessionDialog, given: AnswerArguments, text: str | None) -> "DialogReply":
    """Raises `ClientError` when the text does not answer this dialog."""
    from switchtower.client import errors
    from switchtower.presentation import dialog_form

    if given.dismiss:
        return dialog_form.DISMISSED
    reply = (
        dialog_form.DialogReply(confirmed=given.confirmed)
        if text is None
        else dialog_form.parse_dialog_reply(waiting.dialog, text)
    )
    if reply is None:
        raise errors.ClientError(
            f"that is no answer to “{waiting.dialog.title}”, a `{waiting.dialog.method}`",
            hint=f"answer with {dialog_form.format_answer_command(waiting.dialog, waiting.session_id)}",
        )
    return reply


async def _submit_reply(client: "DaemonClient", waiting: SessionDialog, reply: "DialogReply") -> None:
    from switchtower.client import errors
    from switchtower.presentation import dialog_form

    session_id, dialog = waiting
    if (problem := dialog_form.find_reply_problem(dialog, reply)) is not None:
        raise errors.ClientError(
            f"that is no answer to “{dialog.title}”, a `{dialog.method}`: {problem}",
            hint=f"answer with {dialog_form.format_answer_command(dialog, session_id)}",
        )
    await client.answer_dialog(session_id, dialog.dialog_id, **reply._asdict())
    console.print_line(f"{'dismissed' if reply.dismissed else 'answered'}: {dialog.title} ({session_id})")
