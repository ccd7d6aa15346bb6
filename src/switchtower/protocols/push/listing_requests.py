"""The requests of `listings`, for one client."""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from switchtower.core import commands, errors, events, forks, journal
from switchtower.core.session import Session
from switchtower.protocols.push import inbound, listings, numbers, outbound

if TYPE_CHECKING:
    from switchtower.protocols.push.peer import PushConnection

_PAGE = 1_000
_WAITING = (events.SessionState.AWAITING_APPROVAL,)


def make_listing_handlers(connection: "PushConnection") -> dict[str, Callable[[inbound.PushRequest], None]]:
    extras = _ListingRequests(connection)
    return {
        "list_cards": extras.list_cards,
        "list_approvals": extras.list_approvals,
        "search_sessions": extras.search_sessions,
        "fork_session": extras.fork_session,
        "delete_session": extras.delete_session,
    }


class _ListingRequests:
    def __init__(self, connection: "PushConnection") -> None:
        self._connection = connection

    def list_cards(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listings.ListCards)
        asked = request.payload

        async def cards() -> Struct:
            found = await self._connection.tower.list_cards(asked.limit, states=_WAITING if asked.waiting else ())
            return listings.Cards([convert_card(card) for card in found])

        self._connection.respond_later(request, cards)

    def list_approvals(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listings.ListApprovals)
        self._connection.check_full_access()
        limit = request.payload.limit

        async def approvals() -> Struct:
            waiting: list[tuple[Session, str, events.Approval, str | None]] = []
            for card in await self._connection.tower.list_cards(limit, states=_WAITING):
                try:
                    session = await self._connection.tower.get_session(card.session_id)
                except errors.SessionNotFound:
                    continue  # deleted meanwhile
                if session.run is not None:
                    waiting += [(session, session.run.id, approval, card.home) for approval in session.run.pending.values()]
            waiting.sort(key=lambda one: one[2].expires_at_ms)
            return listings.Approvals([_convert_approval(*one) for one in waiting[:limit]])

        self._connection.respond_later(request, approvals)

    def search_sessions(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listings.SearchSessions)
        self._connection.check_full_access()
        asked, tower = request.payload, self._connection.tower

        async def hits() -> Struct:
            titles: dict[str, str | None] = {}
            told = []
            for hit in await tower.search(asked.text, asked.limit, session_id=request.session_id or asked.sessionId):
                if hit.session_id not in titles:
                    card = await tower.find_card(hit.session_id)
                    titles[hit.session_id] = card.title if card is not None else None
                title = titles[hit.session_id]
                if title is not None:
                    told.append(listings.Hit(hit.session_id, hit.seq, hit.ts_ms, hit.kind, hit.snippet, title))
            return listings.Hits(told)

        self._connection.respond_later(request, hits)

    def fork_session(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listings.ForkSession) and request.session_id
        parent_id, wished, tower = request.session_id, request.payload.beforeSeq, self._connection.tower
        before_seq = None if wished is None else numbers.get_journal_seq(wished)
        self._connection.check_can_command(parent_id)
        self._connection.check_full_access()
        token = tower.mint_secret("att")

        async def fork() -> Struct:
            parent = await tower.get_session(parent_id)
            if parent.terminal is not None or parent.flow is not None:
                raise errors.InvalidCommand("only a conversation with an agent can be forked")
            forked = forks.ConversationFork(before_seq)
            after_seq = 0
            while not forked.reached and (entries := await tower.read_entries(parent_id, after_seq, _PAGE)):
                forked.add_entries(entries)
                after_seq = entries[-1].seq
            command = commands.StartSession(
                session_id=tower.mint("sess"),
                actor=self._connection.actor,
                engine="agent",
                mode="interactive",
                provider=parent.provider,
                workspace=parent.workspace,
                attach_token_sha256=hashlib.sha256(token.encode()).hexdigest(),
                conversation=forked.build_conversation(),
                title=f"{parent.title} (fork)" if parent.title else None,
                id_is_fresh=True,
            )
            await tower.host_services.look_up_model(command)
            command = forks.inherit_settings(tower.host_services.prepare_session(forks.inherit_settings(command, parent)), parent)
            await tower.ask(command)
            return listings.Forked(command.session_id, token, forked.text)

        self._connection.respond_later(request, fork)

    def delete_session(self, request: inbound.PushRequest) -> None:
        assert request.session_id is not None, "the request names a session"
        session_id = request.session_id
        self._connection.check_can_command(session_id)
        self._connection.check_full_access()
        command = commands.DeleteSession(session_id=session_id, actor=self._connection.actor)
        self._connection.submit(
            command, request, lambda _: self._connection.encode_answer(request, session_id, listings.Deleted(accepted=True))
        )


def convert_card(card: journal.Card) -> listings.Card:
    waiting = None
    if card.pending_approval_id is not None:
        question = card.question or journal.ApprovalSummary("", "", "")
        waiting = listings.Waiting(card.pending_approval_id, question.title, question.tool, question.summary)
    return listings.Card(
        sessionId=card.session_id,
        state=outbound.convert_state(card.state),
        title=card.title,
        engine=card.engine,
        provider=card.provider,
        model=card.model,
        mode=card.mode,
        rootPath=card.workspace.root,
        branch=card.workspace.branch,
        createdAt=card.created_at_ms,
        updatedAt=card.updated_at_ms,
        endedAt=card.ended_at_ms,
        activeRunId=card.active_run_id,
        messages=card.messages,
        tool=card.tool or None,
        waitsFor=card.waits.reason if card.waits else None,
        exitCode=card.exit_code,
        host=card.host,
        hostLost=card.host_lost,
        waiting=waiting,
        home=card.home,
        sandbox=card.sandbox,
        childOf=card.child_of,
    )


def _convert_approval(session: Session, run_id: str, approval: events.Approval, home: str | None) -> listings.PendingApproval:
    return listings.PendingApproval(
        sessionId=session.id,
        runId=run_id,
        sessionTitle=session.title,
        rootPath=session.workspace.root,
        host=session.host,
        approval=outbound.make_approval_required(approval),
        home=home,
    )
