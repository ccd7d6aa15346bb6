"""A model provider's server for tests: a real HTTP server on loopback that answers from a script.

It speaks the streaming APIs of OpenAI (chat completions), Anthropic (messages) and Google (streamGenerateContent), and
misbehaves as scripted: refusals, silence, cut streams, invalid data. It runs on the event loop that enters it; `run_in_thread`
is for tests without one.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, assert_never

from switchtower.testing import model_encoders as anthropic
from switchtower.testing import model_script as script


class ReplyEncoder(Protocol):
    """One provider's encoding of a reply."""

    def begin(self) -> Iterator[bytes]: ...
    def encode_text(self, step: script.TextStep) -> Iterator[bytes]: ...
    def encode_thinking(self, step: script.ThinkingStep) -> Iterator[bytes]: ...
    def encode_call(self, step: script.CallStep) -> Iterator[bytes]: ...
    def encode_ping(self) -> Iterator[bytes]: ...
    def encode_failure(self, step: script.FailStep) -> Iterator[bytes]: ...
    def end(self) -> Iterator[bytes]: ...


_DIALECTS: dict[
    str, tuple[str, Callable[[script.ScriptedReply], ReplyEncoder], Callable[[script.ScriptedRefusal], dict[str, Any]]]
] = {
    "openai": (anthropic.OPENAI_PATH_END, anthropic.OpenAIReplyEncoder, anthropic.encode_openai_error),
    "anthropic": (anthropic.ANTHROPIC_PATH_END, anthropic.AnthropicReplyEncoder, anthropic.encode_anthropic_error),
    "google": (anthropic.GOOGLE_PATH_END, anthropic.GoogleReplyEncoder, anthropic.encode_google_error),
}


_LISTS = ("/models", "/api/tags")


class _ConnectionDropped(Exception):
    """The script drops the connection here."""


class ModelServer:
    """`async with ModelServer([reply_text("hello")]) as server`, then a client of `server.url`."""

    def __init__(self, answers: script.ReplyScript, models: Sequence[str] | None = None) -> None:
        """`models` are those that it lists; without them it has no list."""
        self._models = models
        self._script = answers
        self._answered = 0
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Condition()
        self.requests: list[script.ReceivedRequest] = []
        self.lookups: list[script.ReceivedRequest] = []
        """Requests for the list of models."""
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> "ModelServer":
        self._server = await asyncio.start_server(self._handle_connection, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._conversations):
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    @property
    def origin(self) -> str:
        """The base URL for Anthropic's and Google's clients, which know the paths themselves."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The base URL for clients of OpenAI's API."""
        return f"{self.origin}/v1"

    async def wait_for_request(self, count: int = 1) -> script.ReceivedRequest:
        """Returns the request of this number, as soon as it has arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        self.connections += 1
        early = b""
        try:
            while (received := await _read_request(reader, early)) is not None:
                early = await self._answer(received, reader, writer)
        except (_ConnectionDropped, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()  # cancelled only by `__aexit__`, and the task ends here anyway
        finally:
            self._conversations.discard(task)
            writer.close()

    async def _answer(
        self, received: script.ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """Returns the bytes of the next request that arrived meanwhile."""
        early = b""
        if received.path.endswith(_LISTS):
            self.lookups.append(received)
            _write_refusal(writer, received, self._handle_list(received))
            await writer.drain()
            return early
        async with self._arrived:
            self.requests.append(received)
            self._arrived.notify_all()
        match self._next_answer(received):
            case script.ScriptedRefusal() as refusal:
                _write_refusal(writer, received, refusal)
                await writer.drain()
            case reply:
                early = await self._stream(reader, writer, received, reply)
        received.answered.set()
        return early

    def _handle_list(self, received: script.ReceivedRequest) -> script.ScriptedRefusal:
        path = received.path
        if self._models is None:
            answer = None
            if not isinstance(self._script, Sequence):
                with contextlib.suppress(Exception):  # most scripts handle only model calls
                    answer = self._script(received)
            return (
                answer
                if isinstance(answer, script.ScriptedRefusal)
                else script.ScriptedRefusal(404, "there is no list of models")
            )
        if path.endswith("/api/tags"):
            body: dict[str, Any] = {"models": [{"name": name} for name in self._models]}
        elif "/v1beta/" in path:
            body = {"models": [{"name": f"models/{name}"} for name in self._models]}
        else:
            body = {"object": "list", "data": [{"id": name, "object": "model"} for name in self._models]}
        return script.ScriptedRefusal(200, body=json.dumps(body).encode())

    def _next_answer(self, received: script.ReceivedRequest) -> script.ScriptedAnswer:
        if not isinstance(self._script, Sequence):
            return self._script(received)
        if not received.dialect:
            return script.ScriptedRefusal(404, f"nothing speaks at {received.path}")
        self._answered += 1
        if self._answered > len(self._script):
            return script.ScriptedRefusal(400, "the script is over")
        return self._script[self._answered - 1]

    async def _stream(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        received: script.ReceivedRequest,
        reply: script.ScriptedReply,
    ) -> bytes:
        """Writes the reply and ends it at once when the client disconnects."""
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        speaking = asyncio.create_task(_write_reply(writer, _DIALECTS[received.dialect][1](reply), reply))
        watching = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({speaking, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not speaking.done():
                received.gone.set()
                raise _ConnectionDropped
            speaking.result()
            return watching.result() if watching.done() else b""
        except ConnectionError:
            received.gone.set()
            raise
        finally:
            for task in (speaking, watching):
                task.cancel()
            await asyncio.gather(speaking, watching, return_exceptions=True)


async def _write_reply(writer: asyncio.StreamWriter, voice: ReplyEncoder, reply: script.ScriptedReply) -> None:
    async def write(chunks: Iterator[bytes]) -> None:
        for chunk in chunks:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()

    await write(voice.begin())
    for step in reply.steps:
        match step:
            case script.TextStep():
                await write(voice.encode_text(step))
            case script.ThinkingStep():
                await write(voice.encode_thinking(step))
            case script.CallStep():
                await write(voice.encode_call(step))
            case script.PingStep():
                await write(voice.encode_ping())
            case script.RawStep():
                await write(iter((step.data,)))
            case script.FailStep():
                await write(voice.encode_failure(step))
            case script.PauseStep():
                await asyncio.sleep(step.seconds)
            case script.HoldStep():
                await (step.until or asyncio.Event()).wait()
            case script.CutStep(politely=True):
                writer.write(b"0\r\n\r\n")
                return
            case script.CutStep():
                raise _ConnectionDropped
            case _:
                assert_never(step)
    await write(voice.end())
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _read_request(reader: asyncio.StreamReader, early: bytes) -> script.ReceivedRequest | None:
    try:
        head = (early + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    request_line, *header_lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in header_lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    path = request_line.split(" ")[1].partition("?")[0]
    dialect = next((name for name, (end, _, _) in _DIALECTS.items() if path.endswith(end)), "")
    return script.ReceivedRequest(dialect, path, headers, json.loads(body or b"{}"), asyncio.Event(), asyncio.Event())


def _write_refusal(writer: asyncio.StreamWriter, received: script.ReceivedRequest, refusal: script.ScriptedRefusal) -> None:
    error_body = _DIALECTS[received.dialect or "openai"][2]
    body = refusal.body if refusal.body is not None else json.dumps(error_body(refusal)).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {refusal.status} Refused\r\n{lines}\r\n".encode() + body)


@contextlib.contextmanager
def run_in_thread(answers: script.ReplyScript, models: Sequence[str] | None = None) -> Iterator[ModelServer]:
    """Runs the server on a separate thread with its own event loop. Its events belong to that loop: only read `requests`."""
    ready: list[ModelServer] = []
    started, ended = threading.Event(), threading.Event()

    async def serve() -> None:
        try:
            async with ModelServer(answers, models) as server:
                ready.append(server)
                started.set()
                await asyncio.to_thread(ended.wait)
        finally:
            started.set()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="model-server")
    thread.start()
    try:
        started.wait()
        yield ready[0]
    finally:
        ended.set()
        thread.join()
