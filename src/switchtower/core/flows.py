"""The rules of a flow: it runs once, from its session's beginning to its end, and nobody talks to it. Pure."""

from switchtower.core import commands, errors, events, ids
from switchtower.core.decision import Decision
from switchtower.core.session import Session


def parse_flow(engine: str, flow: events.Flow | None) -> events.Flow | None:
    """The flow that a session is to be, by the words in which protocols ask for one."""
    if (engine == "flow") != (flow is not None):
        raise errors.InvalidCommand("`engine: flow` and `flow` belong together")
    if flow is not None and any("\0" in word for word in flow.argv):
        raise errors.InvalidCommand("the runtime is not one that can be started")
    return flow


def start_flow(command: commands.StartSession, mint: ids.Mint) -> Decision | None:
    if command.flow is None:
        return None
    run_id = mint("run")
    started = events.RunStarted(
        text=command.flow.name, by=command.actor, purpose=events.Purpose.FLOW, headless=command.mode == "headless"
    )
    return Decision([started], run_id, {"run_id": run_id}, ephemeral_input=command.flow)


def refuse_message(session: Session) -> None:
    if session.flow is not None:
        raise errors.InvalidCommand("a flow takes no messages", hint="start it anew with `tower flow run`")
