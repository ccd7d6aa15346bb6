"""People are told of what waits for them and of what has ended; and whatever becomes of that, nobody else notices."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from email.header import decode_header
from pathlib import Path

import pytest
from tests.daemon.conftest import Connect, StartDaemon
from tests.web_server.receiver import WebhookReceiver

from switchtower.core import events
from switchtower.core.session import Session
from switchtower.notifications import delivery, notifier

SECRET = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"


async def test_a_decision_and_the_end_of_its_run_are_told_as_json(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path, receiver: WebhookReceiver
) -> None:
    daemon = await start_daemon_process(notify_webhook=f"{receiver.url}/hook?key=k", public_url="https://tower.example")
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, f"run: echo {SECRET}")
    asked = await client.wait_for_event("approval_required", session_id=session_id)
    (question,) = await receiver.wait_for_requests()
    assert (question.method, question.path) == ("POST", "/hook?key=k")
    assert question.headers["content-type"] == "application/json"
    told = question.json
    assert (told["event"], told["session_id"], told["request_id"]) == ("decision", session_id, asked.content["approvalId"])
    assert told["url"] == f"https://tower.example/#/s/{session_id}"
    assert "echo" in told["title"] + told["text"]
    assert SECRET not in question.body.decode()
    await client.decide(session_id, str(asked.runId), asked.content["approvalId"])
    finished = (await receiver.wait_for_requests(2))[1].json
    assert (finished["event"], finished["session_id"], finished["request_id"]) == ("finished", session_id, None)


async def test_ntfy_is_told_in_its_own_words(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path, receiver: WebhookReceiver, home: Path
) -> None:
    (home / "config.toml").write_text(
        'public_url = "https://tower.example"\n'
        f'[notify]\nwebhook = ["{receiver.url}/topic"]\nformat = "ntfy"\nevents = ["decision"]\n'
    )
    client = await connect(await start_daemon_process())
    session_id = await client.start_session(workspace)
    await client.send(session_id, "run: echo 'Läufe'")
    await client.wait_for_event("approval_required", session_id=session_id)
    (told,) = await receiver.wait_for_requests()
    assert told.path == "/topic"
    assert told.headers["priority"] == "4"
    assert told.headers["click"] == f"https://tower.example/#/s/{session_id}"
    assert told.headers["title"].startswith(("Decide", "=?UTF-8?B?"))
    assert "Läufe" in told.body.decode()


def test_who_wants_no_notifications_traces_or_figures_does_not_load_what_makes_them() -> None:
    modules = tuple(f"switchtower.{name}" for name in ("telemetry.traces", "telemetry.prometheus", "web_api.monitor"))
    packages = ("opentelemetry", "cryptography", "starlette", "uvicorn", "switchtower.notifications")
    code = (
        "import sys; from switchtower.daemon import app;"
        f"print([name for name in sys.modules if name.startswith({packages}) or name in {modules}])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


async def test_an_address_that_never_answers_holds_up_neither_runs_nor_the_end(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path, receiver: WebhookReceiver
) -> None:
    receiver.silent = True
    daemon = await start_daemon_process(notify_webhook=receiver.url)
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    for number in range(3):
        run_id = await client.send(session_id, "say: hello", f"msg_{number}")
        await client.wait_for_event("run_complete", session_id=session_id, run_id=run_id)
    await receiver.wait_for_requests()
    async with asyncio.timeout(delivery.TIMEOUT - 1):  # nobody waits for the thread that waits
        assert await daemon.stop() == 0


async def test_the_address_is_in_no_log(
    start_daemon_process: StartDaemon, connect: Connect, workspace: Path, receiver: WebhookReceiver
) -> None:
    receiver.answers = ["404 Not Found"]
    daemon = await start_daemon_process(notify_webhook=f"{receiver.url}/very-secret-topic", log_level="debug")
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, "say: hello")
    await receiver.wait_for_requests()
    await client.wait_for_event("run_complete", session_id=session_id)
    await daemon.stop()
    assert "very-secret-topic" not in daemon.log()


# By itself

Send = Callable[[notifier.Notification], None]


def make_news(event: str = "decision", title: str = "Decide") -> notifier.Notification:
    return notifier.Notification(
        event=event,
        title=title,
        text="make test",
        session_id="sess_1",
        run_title="A title",
        host=None,
        tool="run",
        request="appr_1",
        place="/#/s/sess_1",
        site=None,
        at_ms=1_700_000_000_000,
    )


class FailingChannel:
    """A channel that fails as often as told."""

    name = "a recorder"

    def __init__(self, *problems: notifier.DeliveryFailed) -> None:
        self.problems = list(problems)
        self.tried = 0
        self.sent: list[notifier.Notification] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.done = asyncio.Event()

    async def send(self, notification: notifier.Notification) -> None:
        await self.gate.wait()
        self.tried += 1
        if self.problems:
            raise self.problems.pop(0)
        self.sent.append(notification)
        self.done.set()


def make_notifier(
    *channels: notifier.NotificationChannel, wanted: tuple[str, ...] = ("decision", "finished", "failed")
) -> notifier.Notifier:
    return notifier.Notifier(
        channels, wanted, public_url=None, clean=lambda text: text.replace(SECRET, "***"), now_ms=lambda: 1, first_pause=0.001
    )


def make_run_ended(outcome: events.Outcome, summary: str = "") -> events.RunCompleted:
    return events.RunCompleted(outcome, summary, 0)


async def test_what_fails_for_a_while_is_tried_again() -> None:
    again = [notifier.DeliveryFailed("busy", again=True) for _ in range(notifier.ATTEMPTS - 1)]
    channel = FailingChannel(*again)
    made = make_notifier(channel)
    made.on_event(Session(id="sess_1"), make_run_ended(events.Outcome.SUCCESS))
    async with asyncio.timeout(60):
        await channel.done.wait()
    assert channel.tried == notifier.ATTEMPTS
    await made.close()


async def test_what_is_refused_for_good_is_not_tried_again_and_the_next_one_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    channel = FailingChannel(notifier.DeliveryFailed("it answered 404", again=False))
    made = make_notifier(channel)
    made.on_event(Session(id="sess_1"), make_run_ended(events.Outcome.SUCCESS, "first"))
    made.on_event(Session(id="sess_1"), make_run_ended(events.Outcome.FAILED, "second"))
    async with asyncio.timeout(60):
        await channel.done.wait()
    assert [told.text for told in channel.sent] == ["second"]
    assert "it answered 404" in caplog.text
    await made.close()


async def test_a_crowd_for_a_dead_address_is_bounded_and_leaves_the_others_alone() -> None:
    dead, well = FailingChannel(), FailingChannel()
    dead.gate.clear()
    made = make_notifier(dead, well)
    for number in range(1_000):
        made.on_event(Session(id="sess_1"), make_run_ended(events.Outcome.SUCCESS, str(number)))
        if number % 50 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        while not well.sent or well.sent[-1].text != "999":
            well.done.clear()
            await well.done.wait()
    dead.gate.set()
    async with asyncio.timeout(60):
        while not dead.sent or dead.sent[-1].text != "999":
            dead.done.clear()
            await dead.done.wait()
    assert len(dead.sent) <= notifier.MAX_WAITING + 1
    await made.close()


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (make_run_ended(events.Outcome.SUCCESS), ["finished"]),
        (events.DialogOpened(events.Dialog(id="dlg_1", method="input", title="Which one?", expires_at_ms=1)), ["decision"]),
        (make_run_ended(events.Outcome.FAILED), ["failed"]),
        (make_run_ended(events.Outcome.CANCELLED), []),
        (make_run_ended(events.Outcome.DENIED), []),
        (events.ErrorRaised("X", "y"), []),
    ],
)
async def test_what_waits_or_has_ended_is_news_and_what_somebody_did_themselves_is_not(
    event: events.AnyEvent, told: list[str]
) -> None:
    channel = FailingChannel()
    made = make_notifier(channel)
    made.on_event(Session(id="sess_1"), event)
    made.on_event(Session(id="sess_1"), make_run_ended(events.Outcome.SUCCESS, "last"))
    async with asyncio.timeout(60):
        while not channel.sent or channel.sent[-1].text != "last":
            channel.done.clear()
            await channel.done.wait()
    assert [one.event for one in channel.sent[:-1]] == told
    await made.close()


async def test_only_what_is_wanted_is_told_and_no_secret_in_it() -> None:
    channel = FailingChannel()
    made = make_notifier(channel, wanted=("failed",))
    made.on_event(Session(id="sess_1"), make_run_ended(events.Outcome.SUCCESS))
    made.on_event(
        Session(id="sess_1", title=f"about {SECRET}"), make_run_ended(events.Outcome.FAILED, f"{SECRET} \n " + "long " * 10_000)
    )
    async with asyncio.timeout(60):
        await channel.done.wait()
    (told,) = channel.sent
    assert SECRET not in told.text + told.run_title
    assert len(told.text) == notifier.MAX_TEXT_LENGTH
    assert "\n" not in told.text
    await made.close()


# One POST


async def test_a_redirect_is_not_followed(receiver: WebhookReceiver) -> None:
    receiver.answers = [f"307 Temporary Redirect\r\nLocation: {receiver.url}/elsewhere"]
    with pytest.raises(notifier.DeliveryFailed) as refused:
        await delivery.WebhookChannel(f"{receiver.url}/here", "json").send(make_news())
    assert not refused.value.again
    assert "leads elsewhere" in str(refused.value)
    assert [got.path for got in receiver.got] == ["/here"]


@pytest.mark.parametrize(
    ("status", "again"), [("500 X", True), ("503 X", True), ("429 X", True), ("408 X", True), ("400 X", False), ("404 X", False)]
)
async def test_which_refusals_are_worth_another_try(receiver: WebhookReceiver, status: str, again: bool) -> None:
    receiver.answers = [f"{status}\r\nRetry-After: 7"]
    with pytest.raises(delivery.DeliveryRejected) as refused:
        await delivery.post_notification(receiver.url, b"", {})
    assert (refused.value.again, refused.value.after) == (again, 7.0)


async def test_silence_has_an_end(receiver: WebhookReceiver) -> None:
    receiver.silent = True
    with pytest.raises(notifier.DeliveryFailed) as refused:
        await delivery.post_notification(receiver.url, b"", {}, timeout_s=0.1)
    assert refused.value.again


async def test_nobody_there_is_trouble_that_may_pass_and_names_no_address() -> None:
    with pytest.raises(notifier.DeliveryFailed) as refused:
        await delivery.post_notification("http://127.0.0.1:1/secret", b"", {})
    assert refused.value.again
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("title", ["Läufe 🚂", "plain", "a\r\nX-Evil: 1", "x" * 500])
async def test_a_title_is_one_header_whatever_is_in_it(receiver: WebhookReceiver, title: str) -> None:
    await delivery.WebhookChannel(receiver.url, "ntfy").send(make_news(title=title))
    (got,) = receiver.got
    ((text, charset),) = decode_header(got.headers["title"])
    assert (text.decode(charset or "ascii") if isinstance(text, bytes) else text) == title
    assert "x-evil" not in got.headers
    assert "127.0.0.1" in repr(delivery.WebhookChannel("http://127.0.0.1/secret", "json"))
    assert "secret" not in repr(delivery.WebhookChannel("http://127.0.0.1/secret", "json"))
