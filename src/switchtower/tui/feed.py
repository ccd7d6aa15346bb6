"""The app's only connection to the daemon: one client for requests, one follower for the open session, and a periodic refresh of
the session list.

It draws nothing: it reports every update to the `FeedListener`. Keystrokes for a program are sent in order, and those that wait
are sent together.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeVar

from switchtower import config
from switchtower.client import discovery, errors, frames, node_names
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.presentation import approval_text
from switchtower.protocols.push import extension_messages, listing_messages, messages
from switchtower.tui import event_reader
from switchtower.tui.state import session_rows

MOST_QUEUED = 64 * 1024


class KeySender:
    def __init__(self, send: Callable[[str, str], Awaitable[None]], on_problem: Callable[[errors.ClientError], None]) -> None:
        self._send = send
        self._on_problem = on_problem
        self._queue: list[tuple[str, str]] = []
        self._task: asyncio.Task[None] | None = None

    def enqueue(self, session_id: str, keys: str) -> None:
        if sum(len(waiting) for _, waiting in self._queue) + len(keys) > MOST_QUEUED:
            return  # the program does not read its input
        self._queue.append((session_id, keys))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_queued())

    async def _send_queued(self) -> None:
        while self._queue:
            session_id = self._queue[0][0]
            count = next((at for at, (other, _) in enumerate(self._queue) if other != session_id), len(self._queue))
            keys = "".join(typed for _, typed in self._queue[:count])
            del self._queue[:count]
            try:
                await self._send(session_id, keys)
            except errors.ClientError as problem:
                self._on_problem(problem)


REFRESH_SECONDS = 2.0
"""Seconds between two refreshes of the session list."""
MOST_SESSIONS = 100
_MOST_DETAILS = 24
"""The maximum number of sessions whose details one refresh requests."""
_SLOW_ANSWER_S = 1.0
"""Seconds without an answer after which the daemon counts as lost."""

Link = Literal["connecting", "connected", "lost"]
Answer = TypeVar("Answer")


class FeedListener(Protocol):
    def on_link_changed(self, link: Link, reason: str) -> None: ...

    def on_sessions_listed(self, rows: list[session_rows.SessionListRow]) -> None: ...

    def on_approvals_listed(self, pending: list[session_rows.InboxItem], sessions: set[str] | None) -> None:
        """`sessions` are the sessions that `pending` covers; None means all."""

    def on_session_info(self, about: extension_messages.SessionInfo) -> None:
        """Receives all details of the open session whenever they change."""

    def on_events(self, session_id: str, events: list[PushEvent]) -> None: ...

    def on_session_refused(self, session_id: str, problem: errors.ClientError) -> None: ...


class DaemonFeed:
    def __init__(self, settings: config.Settings) -> None:
        self.settings = settings
        self.link: Link = "connecting"
        self._listener: FeedListener | None = None
        self._client: DaemonClient | None = None
        self._connected = asyncio.Event()
        self._refresh_requested = asyncio.Event()
        self._follower: event_reader.SessionFollower | None = None
        self._details: dict[str, tuple[int, extension_messages.SessionInfo]] = {}
        self._requested_details: dict[str, int] = {}
        self._report_task: asyncio.Task[None] | None = None
        self._node_names = node_names.NO_NODES

    # Start and stop

    async def run(self, listener: FeedListener) -> None:
        """Runs until it is cancelled."""
        self._listener = listener
        try:
            await self._connect()
            while True:
                await self._refresh()
                self._refresh_requested.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._refresh_requested.wait(), REFRESH_SECONDS)
        finally:
            self.close_session()
            if self._report_task is not None:
                self._report_task.cancel()
            if self._client is not None:
                self._client.close()

    def refresh_soon(self) -> None:
        """Requests a refresh of the list, because something has changed."""
        self._refresh_requested.set()

    async def start_daemon(self) -> None:
        """Starts a daemon when none is running, at the user's request."""
        (await discovery.connect_or_start(self.settings)).close()
        self.refresh_soon()

    async def get_client(self) -> DaemonClient:
        await self._connected.wait()
        assert self._client is not None, "set before anybody is told"
        return self._client

    def supports(self, capability: str) -> bool:
        return self._client is not None and self._client.supports(capability)

    async def _connect(self) -> None:
        while True:
            try:
                self._client = await DaemonClient.connect(self.settings)
            except errors.ClientError as problem:
                self._set_link("lost", str(problem))
                await asyncio.sleep(REFRESH_SECONDS)
            else:
                self._connected.set()
                self._set_link("connected")
                return

    def _set_link(self, link: Link, reason: str = "") -> None:
        if link != self.link or reason:
            self.link = link
            if self._listener is not None:
                self._listener.on_link_changed(link, reason)

    def _on_connection_lost(self) -> None:
        self._set_link("lost")
        self.refresh_soon()

    # The session list

    async def _refresh(self) -> None:
        client = await self.get_client()
        try:
            rows = await self._load_rows(client)
            assert self._listener is not None
            self._listener.on_sessions_listed(session_rows.sort_rows(rows))
            await self._load_approvals(client, rows)
        except (errors.DaemonUnreachable, errors.ConnectionLost) as problem:
            self._set_link("lost", str(problem))
        except errors.ClientError as problem:
            self._set_link("connected", str(problem))  # the daemon answered, even if with an error

    async def _load_rows(self, client: DaemonClient) -> list[session_rows.SessionListRow]:
        if client.supports("cards"):
            cards = await self._flag_slow_answer(client.list_cards(MOST_SESSIONS))
            # On a single node no session has an owner, so the names are not requested.
            self._node_names = (
                await node_names.fetch_node_names(client) if any(card.home for card in cards) else node_names.NO_NODES
            )
            return [session_rows.make_row_from_card(card, node=self._node_names.format_owner(card.home)) for card in cards]
        listed = await self._flag_slow_answer(client.list_sessions(MOST_SESSIONS))
        if client.supports("session_info"):
            await self._load_details(client, listed)
        return [session_rows.make_row(one, self._get_detail(one.sessionId)) for one in listed]

    async def _flag_slow_answer(self, asked: Awaitable[Answer]) -> Answer:
        """Marks the connection as lost as soon as an answer is late, not only when the request times out."""
        task = asyncio.ensure_future(asked)
        try:
            done, _ = await asyncio.wait({task}, timeout=_SLOW_ANSWER_S)
            if not done:
                self._set_link("lost")
            answer = await task
        finally:
            task.cancel()
        self._set_link("connected")
        return answer

    def _get_detail(self, session_id: str) -> extension_messages.SessionInfo | None:
        known = self._details.get(session_id)
        return known[1] if known else None

    async def _load_details(self, client: DaemonClient, listed: list[messages.ListedSession]) -> None:
        updated = {one.sessionId: one.updatedAt for one in listed}
        self._details = {name: known for name, known in self._details.items() if name in updated}
        for session_id in session_rows.find_stale(listed, self._details, most=_MOST_DETAILS):
            try:
                self._details[session_id] = updated[session_id], await client.get_session(session_id)
            except errors.RequestFailed:
                continue  # the session may have been deleted in between

    async def _load_approvals(self, client: DaemonClient, rows: list[session_rows.SessionListRow]) -> None:
        assert self._listener is not None
        waiting = {row.session_id: row for row in rows if row.is_waiting}
        if not waiting:
            self._listener.on_approvals_listed([], None)
            return
        if (listing := await event_reader.list_pending(client, self._node_names)) is not None:
            self._listener.on_approvals_listed(listing, None)
            return
        self._listener.on_approvals_listed([], {row.session_id for row in rows} - waiting.keys())
        for session_id, row in waiting.items():
            if self._requested_details.get(session_id) != row.updated_ms:
                self._requested_details[session_id] = row.updated_ms
                self._listener.on_approvals_listed(await event_reader.find_pending(client, row), {session_id})

    # The open session

    def follow_session(self, about: extension_messages.SessionInfo) -> None:
        """Follows this session's events from near its end, and stops following any other session."""
        self.close_session()
        assert self._client is not None, "the session was asked for"
        terminal = about.terminal
        after = max(0, about.lastSeq - event_reader.PAGE_SIZE if terminal is None else terminal.screenSeq - 1)
        assert self._listener is not None
        self._follower = event_reader.SessionFollower(
            self._client,
            about.sessionId,
            after_seq=after,
            on_events=self._on_events,
            on_lost=self._on_connection_lost,
            on_refused=self._listener.on_session_refused,
        )

    def close_session(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _on_events(self, session_id: str, events: list[PushEvent]) -> None:
        assert self._listener is not None
        self._set_link("connected")
        self._listener.on_events(session_id, events)
        if any(_changes_details(event) for event in events) and (self._report_task is None or self._report_task.done()):
            self._report_task = asyncio.create_task(self._report_session(session_id))

    async def _report_session(self, session_id: str) -> None:
        await asyncio.sleep(event_reader.BATCH_SECONDS)  # groups events that arrive together into one batch
        try:
            about = await (await self.get_client()).get_session(session_id)
        except errors.ClientError:
            return
        if self._listener is not None:
            self._listener.on_session_info(about)
        self.refresh_soon()

    async def load_older(self, session_id: str, before_seq: int) -> event_reader.EventPage:
        return await event_reader.read_older_page(await self.get_client(), session_id, before_seq)

    # Requests of the user

    async def start_session(self, request: messages.StartSession) -> str:
        started = (await (await self.get_client()).start_session(request)).sessionId
        self.refresh_soon()
        return started

    async def send_message(self, session_id: str, text: str) -> None:
        await (await self.get_client()).send_message(session_id, text)

    async def queue_message(self, session_id: str, text: str, delivery: Literal["steer", "follow_up"]) -> None:
        await (await self.get_client()).queue_message(session_id, text, delivery)

    async def cancel_run(self, session_id: str, *, force: bool = False) -> None:
        await (await self.get_client()).cancel_run(session_id, force=force)

    async def decide_approval(self, pending: session_rows.InboxItem, decision: approval_text.ApprovalChoice) -> None:
        client = await self.get_client()
        await client.decide_approval(
            pending.session_id,
            pending.run_id,
            pending.id,
            decision.decision,
            comment=decision.comment,
            scope=decision.scope,
            stop=decision.stop,
        )

    async def answer_dialog(self, session_id: str, dialog_id: str, reply: Mapping[str, Any]) -> None:
        await (await self.get_client()).answer_dialog(session_id, dialog_id, **reply)

    async def list_open_dialogs(self, session_id: str) -> list[frames.PushDialog]:
        return await (await self.get_client()).list_open_dialogs(session_id)

    async def configure(self, session_id: str, **changes: Any) -> None:
        await (await self.get_client()).configure_session(session_id, **changes)
        self.refresh_soon()

    async def fork_session(self, session_id: str) -> str:
        forked = await (await self.get_client()).fork_session(session_id)
        self.refresh_soon()
        return forked.sessionId

    async def delete_session(self, session_id: str) -> None:
        await (await self.get_client()).delete_session(session_id)
        self.refresh_soon()

    async def search(self, text: str) -> list[listing_messages.Hit]:
        return await (await self.get_client()).search(text)

    async def compact(self, session_id: str, instructions: str) -> None:
        await (await self.get_client()).compact_session(session_id, instructions)

    async def undo(self, session_id: str, *, redo: bool = False) -> None:
        await (await self.get_client()).undo_run(session_id, redo=redo)

    async def get_diff(self, session_id: str) -> str:
        return await (await self.get_client()).get_diff(session_id)

    async def list_models(self) -> list[extension_messages.ModelListing]:
        return await (await self.get_client()).list_models()

    async def list_templates(self, root: str) -> list[extension_messages.Template]:
        client = await self.get_client()
        return await client.list_templates(root) if client.supports("templates") else []

    async def list_presets(self, root: str) -> list[extension_messages.Preset]:
        return await (await self.get_client()).list_presets(root)

    async def get_session(self, session_id: str) -> extension_messages.SessionInfo:
        return await (await self.get_client()).get_session(session_id)

    async def type_keys(self, session_id: str, keys: str) -> None:
        await (await self.get_client()).type_keys(session_id, keys)

    async def resize_terminal(self, session_id: str, cols: int, rows: int) -> None:
        await (await self.get_client()).resize_terminal(session_id, cols, rows)

    def now_ms(self) -> float:
        return time.time() * 1000


def _changes_details(event: PushEvent) -> bool:
    match event.payload:
        case messages.Status(_, phase):
            return phase in ("Usage", "Context compacted", "Message queued", "Message delivered") or phase.endswith(" started")
        case messages.Warn(code):
            return code == "SESSION_CONFIGURED"
        case messages.RunComplete() | messages.ApprovalRequired() | messages.ApprovalReceived():
            return True
    return False
