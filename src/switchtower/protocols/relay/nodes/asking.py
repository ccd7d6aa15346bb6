"""A question to another node, awaited; what goes wrong on the way is said in relay's words."""

import asyncio
from collections.abc import Callable

import msgspec

from switchtower.protocols.relay import errors
from switchtower.protocols.relay.nodes import letters
from switchtower.transports.mesh import ports

NO_ANSWER = "the node of this run gave no answer; try again"


class Moved(Exception):
    """The run's home is another node by now."""


Told = Callable[[letters.Answer | errors.Refused], None]


def post(mesh: ports.Mesh, node_id: str, subject: str, letter: msgspec.Struct, told: Told) -> None:
    def done(answer: bytes | ports.Problem) -> None:
        told(_read(answer))

    mesh.ask(node_id, subject, letters.encode(letter), done)


async def ask(mesh: ports.Mesh, node_id: str, subject: str, letter: msgspec.Struct) -> letters.Answer:
    """Waits for as long as the other node is there. Raises `Refused`, and `Moved`."""
    answer: asyncio.Future[letters.Answer | errors.Refused] = asyncio.get_running_loop().create_future()

    def told(outcome: letters.Answer | errors.Refused) -> None:
        if not answer.done():
            answer.set_result(outcome)

    post(mesh, node_id, subject, letter, told)
    outcome = await answer
    if isinstance(outcome, errors.Refused):
        raise outcome
    if outcome.ok:
        return outcome
    raise refusal(outcome)


def refusal(answer: letters.Answer) -> Exception:
    match answer.why:
        case "moved":
            return Moved()
        case "offline":
            return errors.HostOffline(answer.error or errors.HOST_OFFLINE)
        case "refused":
            return errors.Refused(answer.error or "failed")


def of(problem: errors.Refused) -> letters.Answer:
    """A refusal as the other node is told of it."""
    return letters.Answer(False, error=problem.text, why="offline" if isinstance(problem, errors.HostOffline) else "refused")


def _read(answer: bytes | ports.Problem) -> letters.Answer | errors.Refused:
    match answer:
        case ports.Unreachable():
            return errors.HostOffline(errors.HOST_GONE if answer.sent else errors.HOST_OFFLINE)
        case ports.Unanswerable():
            return errors.Refused(NO_ANSWER)
        case _:
            try:
                return letters.decode(answer, letters.Answer)
            except letters.Unreadable:
                return errors.Refused(NO_ANSWER)
