"""Everything the app asks of the daemon and hears from it: one client for requests, one watch for the open session, and a look
at the list of sessions now and then. It draws nothing; whoever hears of things is given at the beginning.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeVar

from switchtower import config
from switchtower.client import dialogs, discover, errors, homes
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.protocols.push import extensions, listings, messages
from switchtower.tui import approvals, watch
from switchtower.tui.state import decisions, inbox, roster

EVERY = 2.0
"""Seconds between two looks at the list."""
LISTED = 100
_DETAILS = 24
"""Sessions whose details are asked for at one look."""
_SLOW = 1.0
"""Seconds after which an answer is so late that the daemon counts as away."""

Link = Literal["connecting", "connected", "lost"]
Answer = TypeVar("Answer")


class Hears(Protocol):
    def link_changed(self, link: Link, reason: str) -> None: ...

    def sessions_listed(self, rows: list[roster.Row]) -> None: ...

    def approvals_listed(self, pending: list[inbox.Pending], sessions: set[str] | None) -> None:
        """Of these sessions; None is all."""

    def session_told(self, about: extensions.SessionInfo) -> None:
        """All about the open session, whenever it has changed."""

    def events_came(self, session_id: str, events: list[Event]) -> None: ...

    def session_refused(self, session_id: str, problem: errors.ClientError) -> None: ...


class Feed:
    def __init__(self, settings: config.Settings) -> None:
        self.settings = settings
        self.link: Link = "connecting"
        self._hears: Hears | None = None
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._look_now = asyncio.Event()
        self._watch: watch.Watch | None = None
        self._details: dict[str, tuple[int, extensions.SessionInfo]] = {}
        self._asked_about: dict[str, int] = {}
        self._telling: asyncio.Task[None] | None = None
        self._homes = homes.ALONE

    # Coming and going

    async def run(self, hears: Hears) -> None:
        """Until it is cancelled."""
        self._hears = hears
        try:
            await self._connect()
            while True:
                await self._look()
                self._look_now.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._look_now.wait(), EVERY)
        finally:
            self.close_session()
            if self._telling is not None:
                self._telling.cancel()
            if self._client is not None:
                self._client.close()

    def look(self) -> None:
        """At the list, soon: something has changed."""
        self._look_now.set()

    async def revive(self) -> None:
        """Starts a daemon when none runs: the person asked for it."""
        (await discover.connect_or_start(self.settings)).close()
        self.look()

    async def client(self) -> Client:
        await self._connected.wait()
        assert self._client is not None, "set before anybody is told"
        return self._client

    def offers(self, capability: str) -> bool:
        return self._client is not None and self._client.offers(capability)

    async def _connect(self) -> None:
        while True:
            try:
                self._client = await Client.connect(self.settings)
            except errors.ClientError as problem:
                self._is("lost", str(problem))
                await asyncio.sleep(EVERY)
            else:
                self._connected.set()
                self._is("connected")
                return

    def _is(self, link: Link, reason: str = "") -> None:
        if link != self.link or reason:
            self.link = link
            if self._hears is not None:
                self._hears.link_changed(link, reason)

    def _lost(self) -> None:
        self._is("lost")
        self.look()

    # The list

    async def _look(self) -> None:
        client = await self.client()
        try:
            rows = await self._rows(client)
            assert self._hears is not None
            self._hears.sessions_listed(roster.ordered(rows))
            await self._look_for_approvals(client, rows)
        except (errors.DaemonUnreachable, errors.ConnectionLost) as problem:
            self._is("lost", str(problem))
        except errors.ClientError as problem:
            self._is("connected", str(problem))  # it answers, whatever it says

    async def _rows(self, client: Client) -> list[roster.Row]:
        if client.offers("cards"):
            cards = await self._noticing(client.cards(LISTED))
            # Alone, no session has a home, and nobody is asked.
            self._homes = await homes.of(client) if any(card.home for card in cards) else homes.ALONE
            return [roster.row_of_card(card, node=self._homes.shown(card.home)) for card in cards]
        listed = await self._noticing(client.list_sessions(LISTED))
        if client.offers("session_info"):
            await self._learn(client, listed)
        return [roster.row(one, self._detail(one.sessionId)) for one in listed]

    async def _noticing(self, asked: Awaitable[Answer]) -> Answer:
        """An answer that is long in coming is told at once, not when patience has ended."""
        task = asyncio.ensure_future(asked)
        try:
            done, _ = await asyncio.wait({task}, timeout=_SLOW)
            if not done:
                self._is("lost")
            answer = await task
        finally:
            task.cancel()
        self._is("connected")
        return answer

    def _detail(self, session_id: str) -> extensions.SessionInfo | None:
        known = self._details.get(session_id)
        return known[1] if known else None

    async def _learn(self, client: Client, listed: list[messages.ListedSession]) -> None:
        updated = {one.sessionId: one.updatedAt for one in listed}
        self._details = {name: known for name, known in self._details.items() if name in updated}
        for session_id in roster.stale(listed, self._details, most=_DETAILS):
            try:
                self._details[session_id] = updated[session_id], await client.get_session(session_id)
            except errors.RequestFailed:
                continue  # it may have gone in between

    async def _look_for_approvals(self, client: Client, rows: list[roster.Row]) -> None:
        assert self._hears is not None
        waiting = {row.session_id: row for row in rows if row.waits}
        if not waiting:
            self._hears.approvals_listed([], None)
            return
        if (listing := await approvals.listed(client, self._homes)) is not None:
            self._hears.approvals_listed(listing, None)
            return
        self._hears.approvals_listed([], {row.session_id for row in rows} - waiting.keys())
        for session_id, row in waiting.items():
            if self._asked_about.get(session_id) != row.updated_ms:
                self._asked_about[session_id] = row.updated_ms
                self._hears.approvals_listed(await approvals.pending_in(client, row), {session_id})

    # The open session

    def follow(self, about: extensions.SessionInfo) -> None:
        """Its events from near its end on, and no other's."""
        self.close_session()
        assert self._client is not None, "the session was asked for"
        terminal = about.terminal
        after = max(0, about.lastSeq - watch.PAGE if terminal is None else terminal.screenSeq - 1)
        assert self._hears is not None
        self._watch = watch.Watch(
            self._client,
            about.sessionId,
            after_seq=after,
            on_events=self._came,
            on_lost=self._lost,
            on_refused=self._hears.session_refused,
        )

    def close_session(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _came(self, session_id: str, events: list[Event]) -> None:
        assert self._hears is not None
        self._is("connected")
        self._hears.events_came(session_id, events)
        if any(_changes_the_portrait(event) for event in events) and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell(session_id))

    async def _tell(self, session_id: str) -> None:
        await asyncio.sleep(watch.MOMENT)  # what comes at the same time is told with it
        try:
            about = await (await self.client()).get_session(session_id)
        except errors.ClientError:
            return
        if self._hears is not None:
            self._hears.session_told(about)
        self.look()

    async def older(self, session_id: str, before_seq: int) -> watch.Page:
        return await watch.older(await self.client(), session_id, before_seq)

    # What a person can ask for

    async def start(self, request: messages.StartSession) -> str:
        started = (await (await self.client()).start_session(request)).sessionId
        self.look()
        return started

    async def send(self, session_id: str, text: str) -> None:
        await (await self.client()).send(session_id, text)

    async def queue(self, session_id: str, text: str, delivery: Literal["steer", "follow_up"]) -> None:
        await (await self.client()).queue(session_id, text, delivery)

    async def cancel(self, session_id: str, *, force: bool = False) -> None:
        await (await self.client()).cancel(session_id, force=force)

    async def decide(self, pending: inbox.Pending, decision: decisions.Decision) -> None:
        client = await self.client()
        await client.decide(
            pending.session_id,
            pending.run_id,
            pending.id,
            decision.decision,
            comment=decision.comment,
            scope=decision.scope,
            stop=decision.stop,
        )

    async def answer(self, session_id: str, dialog_id: str, reply: Mapping[str, Any]) -> None:
        await (await self.client()).answer_dialog(session_id, dialog_id, **reply)

    async def open_dialogs(self, session_id: str) -> list[dialogs.Dialog]:
        return await (await self.client()).open_dialogs(session_id)

    async def configure(self, session_id: str, **changes: Any) -> None:
        await (await self.client()).configure(session_id, **changes)
        self.look()

    async def fork(self, session_id: str) -> str:
        forked = await (await self.client()).fork(session_id)
        self.look()
        return forked.sessionId

    async def delete(self, session_id: str) -> None:
        await (await self.client()).delete(session_id)
        self.look()

    async def search(self, text: str) -> list[listings.Hit]:
        return await (await self.client()).search(text)

    async def compact(self, session_id: str, instructions: str) -> None:
        await (await self.client()).compact(session_id, instructions)

    async def undo(self, session_id: str, *, redo: bool = False) -> None:
        await (await self.client()).undo(session_id, redo=redo)

    async def diff(self, session_id: str) -> str:
        return await (await self.client()).diff(session_id)

    async def models(self) -> list[extensions.ModelListing]:
        return await (await self.client()).models()

    async def templates(self, root: str) -> list[extensions.Template]:
        client = await self.client()
        return await client.templates(root) if client.offers("templates") else []

    async def presets(self, root: str) -> list[extensions.Preset]:
        return await (await self.client()).presets(root)

    async def about(self, session_id: str) -> extensions.SessionInfo:
        return await (await self.client()).get_session(session_id)

    async def type_keys(self, session_id: str, keys: str) -> None:
        await (await self.client()).type_keys(session_id, keys)

    async def resize(self, session_id: str, cols: int, rows: int) -> None:
        await (await self.client()).resize(session_id, cols, rows)

    def now_ms(self) -> float:
        return time.time() * 1000


def _changes_the_portrait(event: Event) -> bool:
    match event.payload:
        case messages.Status(_, phase):
            return phase in ("Usage", "Context compacted", "Message queued", "Message delivered") or phase.endswith(" started")
        case messages.Warn(code):
            return code == "SESSION_CONFIGURED"
        case messages.RunComplete() | messages.ApprovalRequired() | messages.ApprovalReceived():
            return True
    return False
