"""A request's body typed into a terminal as it comes."""

import codecs

from starlette.requests import Request

from switchtower.core import events, journal
from switchtower.protocols.relay import messages
from switchtower.protocols.relay.host.commands import RunCommands
from switchtower.protocols.relay.http import problems


async def type_request_body(request: Request, card: journal.Card, commands: RunCommands, actor: events.Actor) -> None:
    """Each piece is journalled before the next is taken from the socket, so nothing piles up here."""
    characters = codecs.getincrementaldecoder("utf-8")()
    try:
        async for piece in request.stream():
            await commands.send_stdin(card, messages.SendStdin(text=characters.decode(piece)), actor)
        characters.decode(b"", final=True)
    except UnicodeDecodeError:
        raise problems.HttpError(400, "what is typed is UTF-8") from None
