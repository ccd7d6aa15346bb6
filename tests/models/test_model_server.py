"""The scripted provider itself, asked by a plain HTTP client: others build their tests on it."""

import asyncio
import http.client
import json

import pytest

from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer, run_in_thread

PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "google": "/v1beta/models/m:streamGenerateContent"}


def post(server: ModelServer, path: str, body: object = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body or {"model": "m"}))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("dialect", PATHS)
def test_a_reply_is_streamed_in_the_dialect_of_the_path(dialect: str) -> None:
    with run_in_thread([script.reply_text("hello there")]) as server:
        status, body = post(server, PATHS[dialect])
        assert (status, server.requests[0].dialect) == (200, dialect)
    assert b'"hello "' in body
    assert b'"there"' in body


def test_a_script_that_is_over_says_so() -> None:
    with run_in_thread([script.refuse_overloaded()]) as server:
        assert post(server, PATHS["anthropic"])[0] == 529
        status, body = post(server, PATHS["openai"])
        assert status == 400
        assert b"the script is over" in body
        assert post(server, "/elsewhere")[0] == 404


def test_a_function_can_answer_by_what_it_is_asked() -> None:
    def answer(received: script.ReceivedRequest) -> script.ScriptedAnswer:
        return script.reply_text(f"you said {received.body['say']}")

    with run_in_thread(answer) as server:
        assert b"tower" in post(server, PATHS["openai"], {"say": "tower"})[1]
        assert b"bridge" in post(server, PATHS["openai"], {"say": "bridge"})[1]


def test_a_dropped_connection_is_a_dropped_connection() -> None:
    with run_in_thread([script.ScriptedReply((script.TextStep("half"), script.CutStep()))]) as server, pytest.raises(OSError):
        _read_raw(server)


def _read_raw(server: ModelServer) -> None:
    try:
        post(server, PATHS["openai"])
    except http.client.IncompleteRead as error:
        raise ConnectionError from error


async def test_it_waits_when_the_script_holds_and_sees_the_client_leave() -> None:
    go_on = asyncio.Event()
    async with ModelServer(
        [
            script.ScriptedReply((script.TextStep("one"), script.HoldStep(go_on), script.TextStep("two"))),
            script.ScriptedReply((script.HoldStep(),)),
        ]
    ) as server:
        asking = asyncio.create_task(asyncio.to_thread(post, server, PATHS["openai"]))
        received = await server.wait_for_request()
        assert not received.answered.is_set()
        go_on.set()
        _, body = await asking
        assert b'"two"' in body
        await received.answered.wait()

        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
        second = await server.wait_for_request(2)
        await reader.readuntil(b"message_start")
        writer.close()
        async with asyncio.timeout(60):
            await second.gone.wait()


async def test_leaving_ends_every_conversation() -> None:
    async with ModelServer([script.ScriptedReply((script.HoldStep(),))]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
        await server.wait_for_request()
    async with asyncio.timeout(60):
        while await _read_more(reader):
            pass
    writer.close()


async def _read_more(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1000)
    except ConnectionError:
        return b""
