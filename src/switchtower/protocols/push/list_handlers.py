"""Handlers of the requests of `listing_messages`, for one client: sessions, nodes and trusted folders.

Only the owner manages trusted folders, on the daemon's own socket; a process of a run cannot trust a folder.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from switchtower.core import commands, conversation, errors, events
from switchtower.core.ports import cluster, journal
from switchtower.core.session import Session
from switchtower.protocols.push import encoder, inbound, listing_messages

if TYPE_CHECKING:
    from switchtower.protocols.push.connection import PushConnection


_PAGE = 1_000
_WAITING = (events.SessionState.AWAITING_APPROVAL,)


def make_list_handlers(connection: "PushConnection") -> dict[str, Callable[[inbound.PushRequest], None]]:
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
        assert isinstance(request.payload, listing_messages.ListCards)
        asked = request.payload

        async def cards() -> Struct:
            found = await self._connection.tower.list_cards(asked.limit, states=_WAITING if asked.waiting else ())
            return listing_messages.Cards([convert_card(card) for card in found])

        self._connection.respond_later(request, cards)

    def list_approvals(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listing_messages.ListApprovals)
        self._connection.check_full_access()
        limit = request.payload.limit

        async def approvals() -> Struct:
            waiting: list[tuple[Session, str, events.Approval, str | None]] = []
            for card in await self._connection.tower.list_cards(limit, states=_WAITING):
                try:
                    session = await self._connection.tower.get_session(card.session_id)
                except errors.SessionNotFound:
                    continue  # it was deleted meanwhile
                if session.run is not None:
                    waiting += [(session, session.run.id, approval, card.home) for approval in session.run.pending.values()]
            waiting.sort(key=lambda one: one[2].expires_at_ms)
            return listing_messages.Approvals([_convert_approval(*one) for one in waiting[:limit]])

        self._connection.respond_later(request, approvals)

    def search_sessions(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listing_messages.SearchSessions)
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
                    told.append(listing_messages.Hit(hit.session_id, hit.seq, hit.ts_ms, hit.kind, hit.snippet, title))
            return listing_messages.Hits(told)

        self._connection.respond_later(request, hits)

    def fork_session(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listing_messages.ForkSession) and request.session_id
        parent_id, wished, tower = request.session_id, request.payload.beforeSeq, self._connection.tower
        before_seq = None if wished is None else inbound.get_journal_seq(wished)
        self._connection.check_can_command(parent_id)
        self._connection.check_full_access()
        token = tower.mint_secret("att")

        async def fork() -> Struct:
            parent = await tower.get_session(parent_id)
            if parent.terminal is not None or parent.flow is not None:
                raise errors.InvalidCommand("only a conversation with an agent can be forked")
            forked = conversation.ConversationFork(before_seq)
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
            command = conversation.inherit_settings(
                tower.host_services.prepare_session(conversation.inherit_settings(command, parent)), parent
            )
            await tower.ask(command)
            return listing_messages.Forked(command.session_id, token, forked.text)

        self._connection.respond_later(request, fork)

    def delete_session(self, request: inbound.PushRequest) -> None:
        assert request.session_id is not None, "the request names a session"
        session_id = request.session_id
        self._connection.check_can_command(session_id)
        self._connection.check_full_access()
        command = commands.DeleteSession(session_id=session_id, actor=self._connection.actor)
        self._connection.submit(
            command,
            request,
            lambda _: self._connection.encode_answer(request, session_id, listing_messages.Deleted(accepted=True)),
        )


def convert_card(card: journal.Card) -> listing_messages.Card:
    waiting = None
    if card.pending_approval_id is not None:
        question = card.question or journal.ApprovalSummary("", "", "")
        waiting = listing_messages.Waiting(card.pending_approval_id, question.title, question.tool, question.summary)
    return listing_messages.Card(
        sessionId=card.session_id,
        state=encoder.convert_state(card.state),
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


def _convert_approval(
    session: Session, run_id: str, approval: events.Approval, home: str | None
) -> listing_messages.PendingApproval:
    return listing_messages.PendingApproval(
        sessionId=session.id,
        runId=run_id,
        sessionTitle=session.title,
        rootPath=session.workspace.root,
        host=session.host,
        approval=encoder.make_approval_required(approval),
        home=home,
    )


def make_node_handlers(connection: "PushConnection") -> dict[str, Callable[[inbound.PushRequest], None]]:
    requests = _NodeRequests(connection)
    return {"list_nodes": requests.list_nodes, "drain_node": requests.drain_node}


class _NodeRequests:
    def __init__(self, connection: "PushConnection") -> None:
        self._connection = connection

    def list_nodes(self, request: inbound.PushRequest) -> None:
        known = self._connection.tower.nodes

        async def listing() -> Struct:
            if known is None:
                return listing_messages.Nodes([])
            try:
                found = await known.list_nodes()
            except cluster.LeasesUnavailable as problem:
                raise errors.JournalUnavailable(problem.message, hint=problem.hint) from None
            return listing_messages.Nodes([_convert_node(one, known.node_id) for one in found])

        self._connection.respond_later(request, listing)

    def drain_node(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listing_messages.DrainNode)
        self._connection.check_is_operator()
        known, wait_s = self._connection.tower.nodes, request.payload.waitSeconds
        if known is None:
            raise errors.InvalidCommand(
                "this daemon is alone: there is nobody to hand its sessions to", hint="`tower stop` keeps them for its return"
            )

        async def drain() -> Struct:
            # Draining disconnects clients, this one too; the drain continues whether or not a client waits for it.
            try:
                drained = await asyncio.shield(known.drain(wait_s))
            except cluster.LeasesUnavailable as problem:
                raise errors.JournalUnavailable(problem.message, hint=problem.hint) from None
            return listing_messages.NodeDrained(sessions=drained.sessions, interrupted=drained.interrupted)

        self._connection.respond_later(request, drain)


def _convert_node(node: cluster.Node, this_id: str) -> listing_messages.Node:
    return listing_messages.Node(
        id=node.node_id,
        name=node.name or node.node_id,
        address=node.address,
        version=node.version,
        alive=node.is_alive,
        draining=node.draining,
        sessions=node.sessions,
        joinedAt=node.joined_at_ms,
        isThis=node.node_id == this_id,
    )


def make_trust_handlers(connection: "PushConnection") -> dict[str, Callable[[inbound.PushRequest], None]]:
    requests = _TrustRequests(connection)
    return {
        "list_trusted_folders": requests.list_trusted_folders,
        "trust_folder": requests.trust_folder,
        "forget_folder": requests.forget_folder,
    }


class _TrustRequests:
    def __init__(self, connection: "PushConnection") -> None:
        self._connection = connection

    def list_trusted_folders(self, request: inbound.PushRequest) -> None:
        self._connection.check_is_operator()
        workshop = self._connection.tower.host_services

        async def listing() -> Struct:
            folders = await asyncio.to_thread(workshop.list_trusted_folders)
            return listing_messages.TrustedFolders(
                [listing_messages.TrustedFolder(folder.path, folder.since_ms, folder.by) for folder in folders]
            )

        self._connection.respond_later(request, listing)

    def trust_folder(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listing_messages.TrustFolder)
        self._connection.check_is_operator()
        workshop, path, actor = self._connection.tower.host_services, request.payload.path, self._connection.actor

        async def trusting() -> Struct:
            return listing_messages.FolderTrusted(await asyncio.to_thread(workshop.trust_folder, path, actor))

        self._connection.respond_later(request, trusting)

    def forget_folder(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, listing_messages.ForgetFolder)
        self._connection.check_is_operator()
        workshop, path = self._connection.tower.host_services, request.payload.path

        async def forgetting() -> Struct:
            return listing_messages.FolderForgotten(await asyncio.to_thread(workshop.forget_folder, path))

        self._connection.respond_later(request, forgetting)
