"""A terminal's bytes over the owner's socket: put out as one long answer, typed as one long request."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from tests.protocols.relay.http_parts import WebApiHarness, make_success, open_stage, put_out

from switchtower.core import events
from switchtower.core.ports import engine, journal, session_service
from switchtower.web_api.endpoints import local_runs


@pytest.fixture
async def web_api_harness() -> AsyncIterator[WebApiHarness]:
    async with open_stage() as opened:
        yield opened


class TalkingEngine:
    """A program that puts out what it is handed, and ends when it is handed nothing."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[events.AnyEvent | None] = asyncio.Queue()

    def write_output(self, text: str) -> None:
        self._lines.put_nowait(put_out(text))

    def paint(self, text: str) -> None:
        self._lines.put_nowait(events.ScreenCaptured(text=text, cols=80, rows=24))

    def end(self) -> None:
        self._lines.put_nowait(None)

    async def work(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        while (event := await self._lines.get()) is not None:
            await context.emit(event)
            await context.flush()  # a commit of its own
        return make_success()


async def test_output_is_streamed_from_the_start_until_the_run_ends(web_api_harness: WebApiHarness) -> None:
    talker = TalkingEngine()
    talker.write_output("früh\n")
    run_id = await web_api_harness.start_run(talker.work)
    exchange = await web_api_harness.local.open("GET", f"/runs/{run_id}/stdout?from=start")
    status, headers = await exchange.read_head()
    assert (status, headers["content-type"]) == (200, "application/octet-stream")
    assert await exchange.read_until(b"\n") == "früh\n".encode()
    talker.write_output("later\n")
    assert await exchange.read_until(b"\n") == b"later\n"
    talker.end()
    assert await exchange.read_rest() == b""


async def test_a_late_joiner_is_given_the_last_screen_and_what_came_since(web_api_harness: WebApiHarness) -> None:
    talker = TalkingEngine()
    for step in (
        lambda: talker.write_output("old"),
        lambda: talker.paint("[screen]"),
        lambda: talker.write_output("new"),
        talker.end,
    ):
        step()
    run_id = await web_api_harness.start_run(talker.work)
    await web_api_harness.wait_for_end(run_id)
    assert (await web_api_harness.local.get(f"/runs/{run_id}/stdout")).body == b"[screen]new"
    assert (await web_api_harness.local.get(f"/runs/{run_id}/stdout?from=screen")).body == b"[screen]new"
    assert (await web_api_harness.local.get(f"/runs/{run_id}/stdout?from=start")).body == b"oldnew"
    assert (await web_api_harness.local.get(f"/runs/{run_id}/stdout?from=now")).body == b""


async def test_without_a_screen_a_late_joiner_is_given_everything(web_api_harness: WebApiHarness) -> None:
    talker = TalkingEngine()
    talker.write_output("all")
    talker.end()
    run_id = await web_api_harness.start_run(talker.work)
    await web_api_harness.wait_for_end(run_id)
    assert (await web_api_harness.local.get(f"/runs/{run_id}/stdout")).body == b"all"


async def test_from_now_on_only_what_comes_is_given(web_api_harness: WebApiHarness) -> None:
    talker = TalkingEngine()
    talker.write_output("before")
    talker.paint("[screen]")
    run_id = await web_api_harness.start_run(talker.work)
    await web_api_harness.wait_for_events(run_id, events.ScreenCaptured)
    exchange = await web_api_harness.local.open("GET", f"/runs/{run_id}/stdout?from=now")
    await exchange.read_head()
    talker.write_output("after")
    talker.end()
    assert await exchange.read_rest() == b"after"


async def test_the_stream_of_a_run_that_has_ended_ends_wherever_it_begins(web_api_harness: WebApiHarness) -> None:
    talker = TalkingEngine()
    talker.write_output("text")
    talker.end()
    run_id = await web_api_harness.start_run(talker.work)
    await web_api_harness.wait_for_end(run_id)
    await web_api_harness.local.get(f"/runs/{run_id}/fs/list")
    await web_api_harness.wait_for_events(run_id, events.RemoteCallFinished)
    for after_seq in range((await web_api_harness.runtime.get_session(run_id)).seq + 1):
        following = local_runs.TerminalSubscriber()
        attached: asyncio.Future[session_service.Attachment] = asyncio.get_running_loop().create_future()
        web_api_harness.runtime.attach(run_id, after_seq, following, admit=lambda _: None, done=attached.set_result)  # type: ignore[arg-type]
        following.start(await attached)
        async with asyncio.timeout(60):
            while await following.read_next() is not None:
                pass
        following.close()


async def test_a_run_that_is_stopped_ends_the_stream(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run(TalkingEngine().work)
    exchange = await web_api_harness.local.open("GET", f"/runs/{run_id}/stdout")
    await exchange.read_head()
    assert (await web_api_harness.local.post(f"/runs/{run_id}/stop")).status == 200
    assert await exchange.read_rest() == b""


async def test_what_has_no_terminal_has_no_output(web_api_harness: WebApiHarness) -> None:
    session_id = await web_api_harness.start_agent()
    for method, path in (("GET", "stdout"), ("POST", "stdin")):
        answer = await web_api_harness.local.ask(method, f"/runs/{session_id}/{path}")
        assert (answer.status, answer.json["error"]) == (409, "run has no terminal")
    run_id = await web_api_harness.start_run()
    assert (await web_api_harness.local.get(f"/runs/{run_id}/stdout?from=middle")).status == 400
    assert (await web_api_harness.local.ask("HEAD", f"/runs/{run_id}/stdout")).status == 200
    assert (await web_api_harness.local.get("/runs/nothing/stdout")).status == 404


async def test_a_slow_reader_gets_everything_in_order_and_little_waits_for_it(web_api_harness: WebApiHarness) -> None:
    pieces = [f"{number:06}{'x' * 16_000}\n" for number in range(2_000)]  # 32 MB
    whole = sum(len(piece) for piece in pieces)

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        for piece in pieces:
            await desk.emit(put_out(piece))
        return make_success()

    run_id = await web_api_harness.start_run(work)
    exchange = await web_api_harness.local.open("GET", f"/runs/{run_id}/stdout?from=start")
    await exchange.read_head()
    await web_api_harness.wait_for_end(run_id)  # nothing has been read so far: the program did not wait for it
    tracemalloc.start()
    try:
        got = 0
        position = 0
        held = b""
        while chunk := await exchange.read_chunk():
            got += len(chunk)
            held += chunk
            while (end := held.find(b"\n")) >= 0:
                assert held[:6] == f"{position:06}".encode()
                held, position = held[end + 1 :], position + 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (got, position) == (whole, len(pieces))
    assert peak < whole / 2, "a page of the journal is held at most, and not the whole output"


async def test_a_reader_who_leaves_is_forgotten(web_api_harness: WebApiHarness) -> None:
    talker = TalkingEngine()
    run_id = await web_api_harness.start_run(talker.work)
    feed = web_api_harness.runtime._get_lane(run_id).feed
    exchanges = [await web_api_harness.local.open("GET", f"/runs/{run_id}/stdout?from=start") for _ in range(5)]
    for exchange in exchanges:
        await exchange.read_head()
    assert feed.cursors == 5
    for exchange in exchanges:
        await exchange.leave()
    async with asyncio.timeout(60):
        while feed.cursors:
            talker.write_output("anybody?")
            await asyncio.sleep(0)


async def test_a_reader_who_leaves_while_much_waits_is_forgotten(web_api_harness: WebApiHarness) -> None:
    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        for _ in range(200):
            await desk.emit(put_out("x" * 16_000))
        await asyncio.Event().wait()
        return make_success()

    run_id = await web_api_harness.start_run(work)
    feed = web_api_harness.runtime._get_lane(run_id).feed
    exchange = await web_api_harness.local.open("GET", f"/runs/{run_id}/stdout?from=start")
    await exchange.read_head()
    await exchange.leave()
    async with asyncio.timeout(60):
        while feed.cursors:
            await asyncio.sleep(0)


async def test_output_that_is_no_longer_kept_is_made_up_for_by_the_screen() -> None:
    async with open_stage(retention=journal.Retention(10, 0)) as stage:
        talker = TalkingEngine()
        for number in range(100):
            talker.write_output(f"<{number}>")
        talker.paint("[screen]")
        talker.write_output("new")
        run_id = await stage.start_run(talker.work)
        await stage.wait_for_events(run_id, events.ScreenCaptured)
        talker.end()
        await stage.wait_for_end(run_id)
        await stage.journal.prune(journal.Retention(10, 0), stage.runtime.now_ms(), run_id)
        assert (await stage.local.get(f"/runs/{run_id}/stdout?from=start")).body == b"[screen]new"


async def test_who_falls_behind_what_is_kept_goes_on_from_the_screen() -> None:
    async with open_stage(retention=journal.Retention(10, 0)) as stage:
        talker = TalkingEngine()
        run_id = await stage.start_run(talker.work)
        following = await local_runs.follow_terminal(stage.runtime, run_id, local_runs.START)
        answer = local_runs.TerminalOutputResponse(stage.runtime, run_id, following)
        sent: list[bytes] = []
        taken = asyncio.Event()

        async def send(message: dict[str, object]) -> None:
            if message["type"] == "http.response.body":
                await taken.wait()
                sent.append(bytes(message["body"]))  # type: ignore[call-overload]

        async def receive() -> dict[str, object]:
            await asyncio.Event().wait()
            raise AssertionError

        answering = asyncio.create_task(answer({}, receive, send))
        for number in range(100):
            talker.write_output(f"<{number}>" + "x" * 10_000)
        talker.paint("[screen]")
        talker.write_output("new")
        talker.end()
        await stage.wait_for_end(run_id)
        await stage.journal.prune(journal.Retention(10, 0), stage.runtime.now_ms(), run_id)
        taken.set()
        await asyncio.wait_for(answering, 5)
        whole = b"".join(sent)
        assert whole.startswith(b"<0>")
        assert whole.endswith(b"[screen]new")


async def test_what_is_sent_is_typed_as_it_comes(web_api_harness: WebApiHarness) -> None:
    typed: list[str] = []
    enough = asyncio.Event()

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        while True:
            item = await desk.next_terminal_input()
            typed.append(item.text)
            enough.set()

    run_id = await web_api_harness.start_run(work)
    exchange = await web_api_harness.local.open("POST", f"/runs/{run_id}/stdin", Transfer_Encoding="chunked")
    whole = "ls ü🚂\r".encode()
    for byte in whole:
        exchange.send_chunk(bytes((byte,)))
        await exchange.writer.drain()
    async with asyncio.timeout(60):
        while "".join(typed) != whole.decode():
            enough.clear()
            await enough.wait()
    exchange.send_chunk(b"")
    assert (await exchange.answer()).status == 204
    keys = await web_api_harness.wait_for_events(run_id, events.TerminalKeysTyped)
    assert sum(event.count for event in keys) == len(whole.decode())
    assert {event.by for event in keys} == {events.Actor(name="owner", via="local", address="local")}


@pytest.mark.parametrize("body", [b"\xff\xfe", b"abc\xc3", b"\xed\xa0\x80"])
async def test_what_is_no_text_cannot_be_typed(web_api_harness: WebApiHarness, body: bytes) -> None:
    run_id = await web_api_harness.start_run()
    answer = await web_api_harness.local.post(f"/runs/{run_id}/stdin", body)
    assert (answer.status, answer.json["error"]) == (400, "what is typed is UTF-8")


async def test_typing_ends_with_the_program(web_api_harness: WebApiHarness) -> None:
    talker = TalkingEngine()
    run_id = await web_api_harness.start_run(talker.work)
    exchange = await web_api_harness.local.open("POST", f"/runs/{run_id}/stdin", Transfer_Encoding="chunked")
    exchange.send_chunk(b"a")
    await web_api_harness.wait_for_events(run_id, events.TerminalKeysTyped)
    talker.end()
    await web_api_harness.wait_for_end(run_id)
    exchange.send_chunk(b"b")
    answer = await exchange.answer()
    assert (answer.status, answer.json["error"]) == (409, "run has exited")


async def test_nothing_typed_is_nothing(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    assert (await web_api_harness.local.post(f"/runs/{run_id}/stdin")).status == 204
    assert not [event for event in await web_api_harness.list_events(run_id) if isinstance(event, events.TerminalKeysTyped)]
