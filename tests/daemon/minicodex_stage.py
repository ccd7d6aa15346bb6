"""MiniCodex clients of the stage's daemon."""

from tests.daemon.pi_stage import PATIENCE, Stage

from switchtower.testing.minicodex_client import Ledger, MiniCodexClient


async def mini_client(stage: Stage, *, ledger: Ledger | None = None, **query: object) -> MiniCodexClient:
    """Connected, and not greeted yet. Without a session it makes one in the workspace."""
    given = {"cwd": stage.workspace, **query} if "session_id" not in query else query
    client = await MiniCodexClient.open(stage.endpoints["http"], stage.endpoints["token"], ledger=ledger, **given)
    client.patience = PATIENCE
    return client


async def greeted(stage: Stage, **query: object) -> MiniCodexClient:
    client = await mini_client(stage, **query)
    await client.hello()
    return client


async def read_until(client: MiniCodexClient, event_id: int) -> None:
    """Everything up to this event has been read."""
    while client.ledger.last_event_id < event_id:
        await client.receive()
