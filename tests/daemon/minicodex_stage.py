"""MiniCodex clients of the stage's daemon."""

from tests.daemon.pi_stage import TIMEOUT, PiHarness

from switchtower.testing.minicodex_client import FoldedSession, MiniCodexClient


async def connect_minicodex(pi_harness: PiHarness, *, ledger: FoldedSession | None = None, **query: object) -> MiniCodexClient:
    """Connected, and not greeted yet. Without a session it makes one in the workspace."""
    given = {"cwd": pi_harness.workspace, **query} if "session_id" not in query else query
    client = await MiniCodexClient.open(pi_harness.endpoints["http"], pi_harness.endpoints["token"], ledger=ledger, **given)
    client.timeout = TIMEOUT
    return client


async def connect_and_greet(pi_harness: PiHarness, **query: object) -> MiniCodexClient:
    client = await connect_minicodex(pi_harness, **query)
    await client.send_hello()
    return client


async def read_until(client: MiniCodexClient, event_id: int) -> None:
    """Everything up to this event has been read."""
    while client.ledger.last_event_id < event_id:
        await client.receive()
