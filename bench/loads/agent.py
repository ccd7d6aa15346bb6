"""The agent's loop against the bare stream of the same model, in one process: what a token and a tool call cost on top.

The model streams from memory, so that the loop is not hidden behind a network. The loop runs as in the daemon: through a
real lane into a real SQLite journal.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import uvloop

from switchtower.core import commands, events, redact
from switchtower.core.ports import engine, journal
from switchtower.engines.agent.context import AgentServices
from switchtower.engines.agent.loop import AgentEngine
from switchtower.models import port
from switchtower.runtime.runtime import Runtime
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.testing.host_services import StubHostServices
from switchtower.testing.session_driver import OWNER, start_session
from switchtower.tools import registry
from switchtower.tools.mcp.servers import McpServers
from switchtower.tools.snapshots.checkpoints import Checkpoints


class MemoryModel:
    """So many tokens, or so many turns with one call each; then a word."""

    provider = name = "memory"
    context_window = None

    def __init__(self, tokens: int, calls: int) -> None:
        self._tokens = tokens
        self._calls = calls

    async def stream(self, request: port.CompletionRequest) -> AsyncIterator[port.Part]:
        if self._calls:
            self._calls -= 1
            yield port.ToolCallPart("list_dir", {})
        else:
            for number in range(self._tokens):
                yield port.TextPart("lorem ")
                if number % 16 == 0:
                    await asyncio.sleep(0)  # as pieces of a network's packets come
        yield port.UsagePart(1, 1)


async def run_bare(tokens: int, calls: int) -> float:
    model = MemoryModel(tokens, calls)
    began = time.perf_counter()
    for _ in range(calls + 1):
        async for _ in model.stream(port.CompletionRequest(())):
            pass
    return time.perf_counter() - began


async def run_ours(tokens: int, calls: int, folder: Path) -> float:
    async def open_model(provider: str, name: str | None) -> port.Model:
        return MemoryModel(tokens, calls)

    store = SqliteJournal(folder / "journal.db")
    await store.open()
    kit = AgentServices(
        open_model, registry.make_core_toolbox(), Checkpoints(folder / "checkpoints"), McpServers(None, environment=dict)
    )
    ended = asyncio.Event()

    class Watched(AgentEngine):
        async def run(self, task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
            result = await super().run(task, desk)
            assert result.outcome is events.Outcome.SUCCESS, result.summary
            await desk.flush()
            ended.set()
            return result

    runtime = Runtime(
        store,
        {"agent": Watched(kit)},
        StubHostServices(),
        redactor=redact.Redactor(),
        approval_timeout_ms=1_000,
        receipt_ttl_ms=1_000,
        retention=journal.Retention(0, 0),
    )
    await runtime.start()
    start = msgspec.structs.replace(start_session("sess_1"), workspace=events.Workspace(root=str(folder)))
    began = 0.0
    for command in (start, commands.SendMessage(session_id="sess_1", actor=OWNER, text="go")):
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        runtime.submit(command, done.set_result)
        await done
    await ended.wait()
    took = time.perf_counter() - began
    await runtime.stop()
    await store.close()
    return took


if __name__ == "__main__":
    arguments = msgspec.json.decode(sys.argv[1])
    tokens, calls, folder = arguments["tokens"], arguments["calls"], Path(arguments["folder"])
    folder.mkdir(parents=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        took = {"bare": runner.run(run_bare(tokens, calls)), "ours": runner.run(run_ours(tokens, calls, folder))}
    sys.stdout.write(msgspec.json.encode(took).decode())
