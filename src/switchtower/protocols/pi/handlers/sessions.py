"""Sessions: begun, loaded, unloaded, listed, followed; their conversations begun anew, exchanged and forked."""

import asyncio
import hashlib
from collections.abc import Awaitable

from msgspec.structs import replace

from switchtower.core import commands, errors, events, journal, terminals
from switchtower.core.session import Session
from switchtower.protocols.pi import messages, strings
from switchtower.protocols.pi.announcing import session_created, session_deleted
from switchtower.protocols.pi.handlers.hall import Hall, Visitor
from switchtower.protocols.pi.order import inbound, ports
from switchtower.protocols.pi.roster import Standing
from switchtower.protocols.pi.stored.files import Place
from switchtower.protocols.pi.view import shapes, stats, transcript

MOST_STORED = 1_000
ENGINE, MODE, PROVIDER = "agent", "interactive", "auto"


class SessionHandlers:
    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    def list_sessions(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        return ports.Handled(data={"sessions": self._hall.roster.listed()})

    async def create_session(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        body = request.body
        assert isinstance(body, messages.CreateSession)
        session_id = body.sessionId or self._hall.tower.mint("sess")
        cwd = body.cwd or visitor.cwd or self._hall.settings.default_cwd
        program = terminals.wanted(body.engine, body.command)
        command = self._start(session_id, visitor, cwd, preset=body.preset, program=program)
        return await self._begin(request, visitor, command, fresh=body.sessionId is None)

    async def _begin(
        self,
        request: inbound.Request,
        visitor: Visitor,
        command: commands.StartSession,
        *,
        fresh: bool,
        data: dict[str, object] | None = None,
    ) -> ports.Handled:
        """A new session, and the announcement of it. `data` is what the answer has to tell in place of its info."""
        hall, session_id = self._hall, command.session_id
        receipts = hall.begun(request, visitor, session_id=session_id, data=data)
        hall.roster.reserve()
        try:
            await hall.tower.workshop.look_up_model(command)
            prepared = hall.tower.workshop.prepared(command)
            await hall.ask(replace(prepared, receipts=receipts, id_is_fresh=fresh))
        except errors.InvalidCommand:
            if not await self._exists(session_id):
                raise
            await self._begin_again(command, receipts)
        finally:
            hall.roster.release()
        await hall.roster.summon(session_id, visitor.actor)
        return self.begun_session(session_id, data)

    async def _begin_again(self, command: commands.StartSession, receipts: tuple[journal.Receipt, ...]) -> None:
        """One that was unloaded, begun anew under its old id: what it had said is put aside, as by `new_session`."""
        session_id, hall = command.session_id, self._hall
        session = await hall.tower.session(session_id)
        begun_with = session.preset.name if session.preset else None
        another = session.workspace.root != command.workspace.root or command.preset not in (None, begun_with)
        if session.loaded is not False or another:
            raise ports.Refused(strings.session_exists(session_id))
        await hall.ask(commands.LoadSession(session_id=session_id, actor=command.actor))
        await hall.ask(
            commands.ReplaceConversation(
                session_id=session_id, actor=command.actor, conversation=command.conversation, receipts=receipts
            )
        )

    def begun_session(self, session_id: str, data: dict[str, object] | None) -> ports.Handled:
        info = self._hall.standing(session_id).info
        told = {"sessionId": session_id, "sessionInfo": info} if data is None else data
        # The version of another session than the command's own is not told.
        made = session_id if data is None else None
        return ports.Handled(data=told, session_id=made, announcements=(session_created(info),))

    async def _exists(self, session_id: str) -> bool:
        try:
            await self._hall.tower.session(session_id)
        except errors.SessionNotFound:
            return False
        return True

    async def delete_session(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        """pi-server 17.1: unloads it. What runs in it comes to its end first."""
        session_id = request.session_id
        assert session_id is not None
        standing = self._hall.roster.get(session_id)
        if standing is None or not standing.loaded:
            raise ports.Refused(strings.session_not_found(session_id))
        if standing.run_id is not None:
            raise ports.SessionBusy(self._hall.roster.idle(session_id))
        if standing.shells:
            raise ports.SessionBusy(_when_done(self._hall.roster.shell_end(standing.shells[0])))
        receipts = self._hall.begun(request, visitor, done=True)
        await self._hall.ask(commands.UnloadSession(session_id=session_id, actor=visitor.actor, receipts=receipts))
        self._hall.bash_breaker.forget(session_id)
        return ports.Handled(data={"deleted": True}, announcements=(session_deleted(session_id),), settled=True)

    async def switch_session(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        await visitor.follow(standing.info.sessionId)
        return ports.Handled(data={"sessionInfo": self._hall.standing(standing.info.sessionId).info})

    async def list_stored_sessions(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        files = self._hall.files
        cards = await self._hall.tower.cards(MOST_STORED)
        listed = [stats.stored_session_info(card, files.path_of(card.session_id), message_count=card.messages) for card in cards]
        for stored in await asyncio.to_thread(files.stored, [card.workspace.root for card in cards]):
            listed.append(
                shapes.StoredSessionInfo(
                    sessionId=stored.session_id,
                    sessionFile=stored.path,
                    sessionPath=stored.path,
                    cwd=stored.cwd,
                    createdAt=stats.iso(stored.created_at_ms),
                    fileExists=True,
                )
            )
        return ports.Handled(data={"sessions": listed})

    async def load_session(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        body = request.body
        assert isinstance(body, messages.LoadSession)
        place = self._hall.files.place(body.sessionPath)
        if place.session_id is not None and place.until_clearing is None and body.sessionId in (None, place.session_id):
            return await self._load_ours(request, visitor, place.session_id)
        name, cwd, conversation, parent = await self._conversation_at(place)
        session_id = body.sessionId or self._hall.tower.mint("sess")
        command = self._start(session_id, visitor, cwd, conversation=conversation, title=name, parent=parent)
        if parent is not None:
            command = _like(command, await self._hall.tower.session(parent))
        return await self._begin(request, visitor, command, fresh=body.sessionId is None)

    async def _load_ours(self, request: inbound.Request, visitor: Visitor, session_id: str) -> ports.Handled:
        hall = self._hall
        standing = hall.roster.get(session_id)
        if standing is not None and standing.loaded:
            raise ports.Refused(strings.session_exists(session_id))
        if not await self._exists(session_id):
            raise ports.Refused(strings.session_not_found(session_id))
        receipts = hall.begun(request, visitor, session_id=session_id, data=None)
        await hall.roster.load(session_id, visitor.actor, receipts)
        await hall.roster.summon(session_id, visitor.actor)
        return self.begun_session(session_id, None)

    async def _conversation_at(self, place: Place) -> tuple[str | None, str, tuple[events.MessageImported, ...], str | None]:
        """Name, folder, messages, and the session of ours that they come from."""
        if place.session_id is None:
            imported = await asyncio.to_thread(self._hall.files.read, place)
            return imported.name, imported.cwd, imported.messages, None
        try:
            session = await self._hall.tower.session(place.session_id)
        except errors.SessionNotFound:
            raise ports.Refused(strings.session_not_found(place.session_id)) from None
        told = await self._hall.transcript(place.session_id, until_clearing=place.until_clearing)
        return session.title or None, session.workspace.root, told.imported(), session.id

    def _start(
        self,
        session_id: str,
        visitor: Visitor,
        cwd: str,
        *,
        conversation: tuple[events.MessageImported, ...] = (),
        title: str | None = None,
        parent: str | None = None,
        preset: str | None = None,
        program: events.Program | None = None,
    ) -> commands.StartSession:
        token = self._hall.tower.mint_secret("att")  # nobody knows it: over other doors only the owner attaches
        return commands.StartSession(
            session_id=session_id,
            actor=visitor.actor,
            engine=ENGINE,
            mode=MODE,
            provider=PROVIDER,
            workspace=events.Workspace(root=cwd),
            attach_token_sha256=hashlib.sha256(token.encode()).hexdigest(),
            loaded=True,
            conversation=conversation,
            title=title,
            parent=parent,
            preset=preset,
            program=program,
        )

    # Conversations

    async def new_session(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.NewSession)
        return await self._replace(request, visitor, standing, request.body.parentSession, ())

    async def switch_session_file(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.SwitchSessionFile)
        path = request.body.sessionPath
        _, _, conversation, _ = await self._conversation_at(self._hall.files.place(path))
        return await self._replace(request, visitor, standing, path, conversation)

    async def _replace(
        self,
        request: inbound.Request,
        visitor: Visitor,
        standing: Standing,
        origin: str | None,
        conversation: tuple[events.MessageImported, ...],
    ) -> ports.Handled:
        session_id = standing.info.sessionId
        command = commands.ReplaceConversation(
            session_id=session_id,
            actor=visitor.actor,
            origin=origin,
            conversation=conversation,
            receipts=self._hall.begun(request, visitor, data={"cancelled": False}),
        )
        try:
            await self._hall.ask(command)
        except errors.RunInProgress:
            raise ports.SessionBusy(self._hall.roster.idle(session_id)) from None
        return ports.Handled(data={"cancelled": False})

    async def fork(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.Fork)
        hall, parent = self._hall, standing.info.sessionId
        try:
            fork = transcript.Fork(request.body.entryId)
            async for entry in hall.entries(parent):
                if fork.add(entry):
                    break
        except transcript.UnknownEntry as unknown:
            raise ports.Refused(str(unknown)) from None
        if fork.text is None:
            raise ports.Refused(str(transcript.UnknownEntry()))
        session_id = hall.tower.mint("sess")
        command = self._start(session_id, visitor, standing.root, conversation=fork.imported(), parent=parent)
        command = _like(command, await hall.tower.session(parent))
        data: dict[str, object] = {"text": fork.text, "cancelled": False, "sessionId": session_id}
        return await self._begin(request, visitor, command, fresh=True, data=data)

    async def get_fork_messages(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        told = await self._hall.transcript(standing.info.sessionId)
        return ports.Handled(data={"messages": told.points})

    async def list_session_files(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        """The conversations that this session could be switched to: those of its folder, and its own earlier ones."""
        files = self._hall.files
        found = [
            (files.path_of(card.session_id), card.updated_at_ms)
            for card in await self._hall.tower.cards(MOST_STORED)
            if card.workspace.root == standing.root
        ]
        now_ms = self._hall.tower.now_ms()
        found += [
            (files.path_of(standing.info.sessionId, until_clearing=number), now_ms) for number in range(1, standing.clearings + 1)
        ]
        found += [
            (stored.path, stored.modified_at_ms)
            for stored in await asyncio.to_thread(files.stored, [standing.root])
            if stored.cwd == standing.root
        ]
        listed = [
            {"path": path, "name": path.rpartition("/")[2], "modifiedAt": stats.iso(modified_at_ms)}
            for path, modified_at_ms in found
        ]
        return ports.Handled(data={"files": listed})


def _like(command: commands.StartSession, parent: Session) -> commands.StartSession:
    """What a session goes on from it also goes on as: nobody's policy is loosened by a fork."""
    return replace(
        command,
        provider=parent.provider,
        model=parent.model,
        sandbox=parent.sandbox,
        sandbox_is_settled=True,
        policy=parent.policy,
        thinking=parent.thinking,
        budget=parent.budget,
    )


async def _when_done(future: Awaitable[object]) -> None:
    await future
