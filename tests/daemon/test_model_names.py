"""A session's model at its start, seen through push: the first installed one serves, unknown names and prices are refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import Struct
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.schema_check import check

from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer
from switchtower.testing.push_client import PushClient, ReceivedEvent, RequestRefused

TIMEOUT = 60.0
MODELS = ("qwen3:8b", "llama4:latest")


class ModelNameSession(Struct):
    client: PushClient
    server: ModelServer


@pytest.fixture
async def ollama_client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Awaitable[ModelNameSession]]]:
    """A client of a daemon for which `OLLAMA_HOST` leads to a server with these answers and models."""
    async with AsyncExitStack() as stack:

        async def set_up(*answers: script.ScriptedAnswer, models: tuple[str, ...] | None = MODELS) -> ModelNameSession:
            server = await stack.enter_async_context(ModelServer(answers, models))
            monkeypatch.setenv("OLLAMA_HOST", server.origin)
            daemon = ManagedDaemon()
            stack.callback(daemon.discard)
            await asyncio.to_thread(daemon.start)
            client = await PushClient.connect_socket(daemon.socket, check=check, timeout=TIMEOUT)
            return ModelNameSession(await stack.enter_async_context(client), server)

        yield set_up


def list_warnings(events: list[ReceivedEvent]) -> dict[str, str]:
    return {event.payload["code"]: event.payload["message"] for event in events if event.type == "warning"}


async def test_the_documents_start_session_takes_the_first_installed_model(
    ollama_client: Callable[..., Awaitable[ModelNameSession]], workspace: Path
) -> None:
    stage = await ollama_client(script.reply_text("hello"))
    session = await stage.client.start_session(workspace, provider="ollama")
    info = await stage.client.request_payload("get_session", session_id=session.session_id)
    assert (info["provider"], info["model"]) == ("ollama", "qwen3:8b")
    events = await stage.client.run(session.session_id, "hi")
    assert events[-1].payload["outcome"] == "success"
    assert stage.server.requests[0].body["model"] == "qwen3:8b"
    listed = await stage.client.request_payload("list_models", {"provider": "ollama"})
    assert listed["serverModels"] == list(MODELS)


async def test_an_unknown_model_and_an_unknown_price_are_refused_at_the_start(
    ollama_client: Callable[..., Awaitable[ModelNameSession]], workspace: Path
) -> None:
    stage = await ollama_client()
    with pytest.raises(RequestRefused, match="Unknown model: `qwen3:8`; hint: `ollama` has `qwen3:8b`"):
        await stage.client.start_session(workspace, provider="ollama", model="qwen3:8")
    with pytest.raises(RequestRefused, match=r"the price of `qwen3:8b` is unknown; hint: set `price_in` and `price_out` in"):
        await stage.client.start_session(workspace, provider="ollama", limits={"maxCost": 0.5})


async def test_a_limit_of_tokens_reaches_the_provider_and_a_cut_answer_is_no_success(
    ollama_client: Callable[..., Awaitable[ModelNameSession]], workspace: Path
) -> None:
    stage = await ollama_client(script.reply_text("and so", finish="length", usage=script.ScriptedUsage(10, 50)))
    session = await stage.client.start_session(workspace, provider="ollama", limits={"maxTokens": 50})
    events = await stage.client.run(session.session_id, "hi")
    assert stage.server.requests[0].body["max_tokens"] == 50
    assert list_warnings(events)["ANSWER_CUT"] == "The answer was cut: the run's budget was reached"
    complete = events[-1].payload
    assert (complete["outcome"], complete["summary"]) == ("failed", "the answer was cut by the run's budget: 60 of 50 tokens")


async def test_a_name_that_cannot_be_checked_is_taken_with_a_note(
    ollama_client: Callable[..., Awaitable[ModelNameSession]], workspace: Path
) -> None:
    stage = await ollama_client(models=None)
    session = await stage.client.start_session(workspace, provider="ollama", model="any")
    events = await stage.client.read_until("warning")
    assert list_warnings(events) == {"MODEL_NOT_CHECKED": "The model name `any` was not checked: ollama lists no models"}
    assert session.session_id
