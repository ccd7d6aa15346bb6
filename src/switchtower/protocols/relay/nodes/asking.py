"""A question to another node, awaited; what goes wrong on the way is said in relay's words."""

import asyncio
from collections.abc import Callable

import msgspec

from switchtower.protocols.relay import errors
from switchtower.protocols.relay.nodes import letters
from switchtower.transports.mesh import ports

NO_REPLY = "the node of this run gave no answer; try again"


class RunMoved(Exception):
    """The run's home is another node by now."""


OnReply = Callable[[letters.NodeReply | errors.RelayError], None]


def send_request(mesh: ports.Mesh, node_id: str, subject: str, message: msgspec.Struct, on_reply: OnReply) -> None:
    def done(answer: bytes | ports.MeshProblem) -> None:
        on_reply(_decode_reply(answer))

    mesh.request(node_id, subject, letters.encode(message), done)


async def request(mesh: ports.Mesh, node_id: str, subject: str, message: msgspec.Struct) -> letters.NodeReply:
    """Waits for as long as the other node is there. Raises `Refused`, and `Moved`."""
    answer: asyncio.Future[letters.NodeReply | errors.RelayError] = asyncio.get_running_loop().create_future()

    def told(outcome: letters.NodeReply | errors.RelayError) -> None:
        if not answer.done():
            answer.set_result(outcome)

    send_request(mesh, node_id, subject, message, told)
    outcome = await answer
    if isinstance(outcome, errors.RelayError):
        raise outcome
    if outcome.ok:
        return outcome
    raise convert_reply_error(outcome)


def convert_reply_error(answer: letters.NodeReply) -> Exception:
    match answer.why:
        case "moved":
            return RunMoved()
        case "offline":
            return errors.HostOffline(answer.error or errors.HOST_OFFLINE)
        case "refused":
            return errors.RelayError(answer.error or "failed")


def make_error_reply(problem: errors.RelayError) -> letters.NodeReply:
    """A refusal as the other node is told of it."""
    return letters.NodeReply(False, error=problem.text, why="offline" if isinstance(problem, errors.HostOffline) else "refused")


def _decode_reply(answer: bytes | ports.MeshProblem) -> letters.NodeReply | errors.RelayError:
    match answer:
        case ports.NodeUnreachable():
            return errors.HostOffline(errors.HOST_GONE if answer.sent else errors.HOST_OFFLINE)
        case ports.NodeRequestFailed():
            return errors.RelayError(NO_REPLY)
        case _:
            try:
                return letters.decode(answer, letters.NodeReply)
            except letters.NodeMessageError:
                return errors.RelayError(NO_REPLY)
