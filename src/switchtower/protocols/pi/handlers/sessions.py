"""Sessions: begun, loaded, unloaded, listed, followed; their conversations begun anew, exchanged and forked."""

import asyncio
import hashlib
from collections.abc import Awaitable

from msgspec import UNSET, Struct
from msgspec.structs import replace

from switchtower.core import commands, errors, events, ids, journal, terminals
from switchtower.core.session import Session
from switchtower.protocols.pi import messages, strings
from switchtower.protocols.pi.announcing import session_created, session_deleted
from switchtower.protocols.pi.handlers.hall import Hall, Visitor
from switchtower.protocols.pi.models import cast_of
from switchtower.protocols.pi.order import inbound, ports
from switchtower.protocols.pi.roster import Standing, name_of
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
        cwd = body.cwd or visitor.cwd or self._hall.settings.default_cwd
        program = terminals.wanted(body.engine, body.command)
        command = self._start(visitor, cwd, preset=body.preset, program=program)
        return await self._begin(request, visitor, command, body.sessionId)

    async def _begin(
        self, request: inbound.Request, visitor: Visitor, command: commands.StartSession, name: str | None
    ) -> ports.Handled:
        """A new session under this name, and the announcement of it."""
        hall = self._hall
        with hall.roster.reserved(name):
            if name is None:
                session_id = await self._ask_to_start(request, visitor, command, hall.tower.mint("sess"), None)
            else:
                # The core's own id is a name too, also of a session that is not at hand.
                taken = await hall.tower.card(name)
                if taken is not None and taken.loaded is not False:
                    raise ports.Refused(strings.session_exists(name))
                session_id = await self._start_named(request, visitor, command, name)
            standing = await hall.roster.refresh(session_id)
        return self.begun_session(standing)

    async def _start_named(self, request: inbound.Request, visitor: Visitor, command: commands.StartSession, name: str) -> str:
        """The session's id follows from its name, so that of two nodes which start the same session one fails."""
        session_id = ids.named("sess", name, await self._unused_generation(name))
        try:
            return await self._ask_to_start(request, visitor, command, session_id, name)
        except errors.InvalidCommand:
            # Perhaps a session of that id is being removed at this moment. What is wrong with the command is wrong again.
            return await self._ask_to_start(request, visitor, command, self._hall.tower.mint("sess"), name)

    async def _unused_generation(self, name: str) -> int:
        """How many sessions have had this name before, or any other number that none of them has."""
        used, unused = -1, 0
        while await self._hall.tower.card(ids.named("sess", name, unused)) is not None:
            used, unused = unused, 2 * unused + 1
        while unused - used > 1:
            between = (used + unused) // 2
            if await self._hall.tower.card(ids.named("sess", name, between)) is None:
                unused = between
            else:
                used = between
        return unused

    async def _ask_to_start(
        self, request: inbound.Request, visitor: Visitor, command: commands.StartSession, session_id: str, name: str | None
    ) -> str:
        hall = self._hall
        receipts = hall.begun(request, visitor, session_id=name or session_id)
        await hall.tower.workshop.look_up_model(command)
        prepared = hall.tower.workshop.prepared(replace(command, session_id=session_id, alias=name))
        await hall.ask(replace(prepared, receipts=receipts, id_is_fresh=name is None))
        return session_id

    def begun_session(self, standing: Standing) -> ports.Handled:
        return ports.Handled(
            data={"sessionId": standing.name, "sessionInfo": standing.info},
            session_id=standing.name,
            announcements=(session_created(standing.info),),
        )

    async def delete_session(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        """pi-server 17.1: unloads it. What runs in it comes to its end first."""
        name = request.session_id
        assert name is not None
        standing = self._hall.roster.get(name)
        if standing is None or not standing.loaded:
            raise ports.Refused(strings.session_not_found(name))
        if standing.run_id is not None:
            raise ports.SessionBusy(self._hall.roster.idle(standing.id))
        if standing.shells:
            raise ports.SessionBusy(_when_done(self._hall.roster.shell_end(standing.shells[0])))
        receipts = self._hall.begun(request, visitor, done=True)
        await self._hall.ask(commands.UnloadSession(session_id=standing.id, actor=visitor.actor, receipts=receipts))
        self._hall.bash_breaker.forget(standing.id)
        return ports.Handled(data={"deleted": True}, announcements=(session_deleted(name),), settled=True)

    async def switch_session(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        await visitor.follow(standing)
        now = self._hall.roster.by_id(standing.id)
        return ports.Handled(data={"sessionInfo": standing.info if now is None else now.info})

    async def list_stored_sessions(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        cards = await self._hall.tower.cards(MOST_STORED, any_id=True)
        return ports.Handled(data={"sessions": await asyncio.to_thread(self._stored, cards)})

    def _stored(self, cards: list[journal.Card]) -> list[shapes.StoredSessionInfo]:
        """Blocks: it looks at files."""
        files = self._hall.files
        listed = []
        for card in cards:
            path = files.path_of(card.session_id, name_of(card))
            listed.append(stats.stored_session_info(card, path, name=name_of(card), file_exists=files.exists(path)))
        for stored in files.stored([card.workspace.root for card in cards]):
            listed.append(
                shapes.StoredSessionInfo(
                    sessionId=stored.session_id,
                    sessionName=stored.name or UNSET,
                    sessionFile=stored.path,
                    sessionPath=stored.path,
                    cwd=stored.cwd,
                    createdAt=stats.iso(stored.created_at_ms),
                    fileExists=True,
                    messageCount=UNSET if stored.messages is None else stored.messages,
                )
            )
        return listed

    async def load_session(self, request: inbound.Request, visitor: Visitor) -> ports.Handled:
        body = request.body
        assert isinstance(body, messages.LoadSession)
        place = self._hall.files.place(body.sessionPath)
        if place.session_id is not None and place.until_clearing is None:
            card = await self._hall.tower.card(place.session_id)
            if card is None:
                raise ports.Refused(strings.session_not_found(place.session_id))
            if body.sessionId in (None, name_of(card)):
                return await self._load_ours(request, visitor, card)
        taken = await self._conversation_at(place)
        command = self._start(visitor, taken.cwd, conversation=taken.messages, title=taken.title, parent=taken.parent)
        if taken.parent is not None:
            command = _like(command, await self._hall.tower.session(taken.parent))
        else:
            command = self._with_model(command, taken)
        # pi-server 20.2: a file's session keeps its id, so that loading it twice is refused.
        return await self._begin(request, visitor, command, body.sessionId or taken.session_id)

    async def _load_ours(self, request: inbound.Request, visitor: Visitor, card: journal.Card) -> ports.Handled:
        hall, name = self._hall, name_of(card)
        standing = hall.roster.get(name)
        if standing is not None and standing.loaded:
            raise ports.Refused(strings.session_exists(name))
        receipts = hall.begun(request, visitor, session_id=name)
        await hall.roster.load(card.session_id, name, visitor.actor, receipts)
        return self.begun_session(await hall.roster.refresh(card.session_id))

    def _with_model(self, command: commands.StartSession, taken: "Taken") -> commands.StartSession:
        """With the model and the thinking level that the file names, where this server has that model."""
        command = replace(command, thinking=taken.thinking if taken.thinking in messages.LEVELS else None)
        if taken.provider is None or taken.model is None:
            return command
        wanted = commands.ConfigureSession(session_id="", provider=taken.provider, model=taken.model)
        try:
            self._hall.tower.workshop.check_configuration(wanted)
        except errors.CoreError:
            return command
        return replace(command, provider=taken.provider, model=taken.model)

    async def _conversation_at(self, place: Place) -> "Taken":
        if place.session_id is None:
            found = await asyncio.to_thread(self._hall.files.read, place)
            return Taken(
                title=found.name,
                cwd=found.cwd or self._hall.settings.default_cwd,
                messages=found.messages,
                session_id=found.session_id if inbound.is_session_id(found.session_id) else None,
                provider=found.provider,
                model=found.model,
                thinking=found.thinking,
            )
        try:
            session = await self._hall.tower.session(place.session_id)
        except errors.SessionNotFound:
            raise ports.Refused(strings.session_not_found(place.session_id)) from None
        told = await self._hall.transcript(place.session_id, until_clearing=place.until_clearing)
        return Taken(title=session.title or None, cwd=session.workspace.root, messages=told.imported(), parent=session.id)

    def _start(
        self,
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
            session_id="",  # chosen when it is asked for
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
        taken = await self._conversation_at(self._hall.files.place(path))
        return await self._replace(request, visitor, standing, path, taken.messages)

    async def _replace(
        self,
        request: inbound.Request,
        visitor: Visitor,
        standing: Standing,
        origin: str | None,
        conversation: tuple[events.MessageImported, ...],
        data: dict[str, object] | None = None,
    ) -> ports.Handled:
        data = data or {"cancelled": False}
        command = commands.ReplaceConversation(
            session_id=standing.id,
            actor=visitor.actor,
            origin=origin,
            conversation=conversation,
            receipts=self._hall.begun(request, visitor, data=data),
        )
        try:
            await self._hall.ask(command)
        except errors.RunInProgress:
            raise ports.SessionBusy(self._hall.roster.idle(standing.id)) from None
        return ports.Handled(data=data)

    async def fork(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        """The session becomes the fork, as pi's clients expect: they go on in it. What came after the message stays stored."""
        assert isinstance(request.body, messages.Fork)
        hall = self._hall
        if standing.run_id is not None:
            raise ports.SessionBusy(hall.roster.idle(standing.id))
        try:
            fork = transcript.Fork(request.body.entryId, cast_of(hall.models.of(standing.provider, standing.model)))
            async for entry in hall.entries(standing.id):
                if fork.add(entry):
                    break
        except transcript.UnknownEntry as unknown:
            raise ports.Refused(str(unknown)) from None
        if fork.text is None:
            raise ports.Refused(str(transcript.UnknownEntry()))
        origin = hall.files.path_of(standing.id, standing.name, until_clearing=standing.clearings + 1)
        data: dict[str, object] = {"text": fork.text, "cancelled": False, "sessionId": standing.name}
        return await self._replace(request, visitor, standing, origin, fork.imported(), data)

    async def get_fork_messages(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        told = await self._hall.transcript(standing.id)
        return ports.Handled(data={"messages": told.points})

    async def list_session_files(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        """The conversations that this session could be switched to: those of its folder, and its own earlier ones."""
        cards = await self._hall.tower.cards(MOST_STORED, any_id=True)
        return ports.Handled(data={"files": await asyncio.to_thread(self._files_of, standing, cards)})

    def _files_of(self, standing: Standing, cards: list[journal.Card]) -> list[dict[str, object]]:
        """Blocks: it looks at files. A conversation of ours is in the journal, whether or not a file of it was exported."""
        files = self._hall.files
        found = [
            (files.path_of(card.session_id, name_of(card)), card.updated_at_ms)
            for card in cards
            if card.workspace.root == standing.root
        ]
        now_ms = self._hall.tower.now_ms()
        found += [
            (files.path_of(standing.id, standing.name, until_clearing=number), now_ms)
            for number in range(1, standing.clearings + 1)
        ]
        listed = [(path, modified_at_ms, files.exists(path)) for path, modified_at_ms in found]
        listed += [
            (stored.path, stored.modified_at_ms, True) for stored in files.stored([standing.root]) if stored.cwd == standing.root
        ]
        return [
            {"path": path, "name": path.rpartition("/")[2], "modifiedAt": stats.iso(modified_at_ms), "fileExists": exists}
            for path, modified_at_ms, exists in listed
        ]


class Taken(Struct, frozen=True, kw_only=True):
    """A stored conversation that a session begins with, or is switched to."""

    title: str | None
    cwd: str
    messages: tuple[events.MessageImported, ...]
    session_id: str | None = None
    """The id that a file of pi's has for it."""
    parent: str | None = None
    """The session of ours that it comes from."""
    provider: str | None = None
    model: str | None = None
    thinking: str | None = None


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
