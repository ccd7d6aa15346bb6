"""Handlers that create, load, unload, list and follow sessions, and that clear, exchange and fork their conversations."""

import asyncio
import hashlib
from collections.abc import Awaitable

from msgspec import UNSET, Struct
from msgspec.structs import replace

from switchtower.core import commands, errors, events, ids
from switchtower.core.ports import journal
from switchtower.core.rules import user_actions
from switchtower.core.session import Session
from switchtower.protocols.pi import errors as pi_errors
from switchtower.protocols.pi import event_messages, inbound
from switchtower.protocols.pi import messages as pi_messages
from switchtower.protocols.pi.dispatch import ports
from switchtower.protocols.pi.errors import PiCommandError, SessionBusy
from switchtower.protocols.pi.handlers.context import Client, HandlerContext
from switchtower.protocols.pi.responses import encode_session_created, encode_session_deleted
from switchtower.protocols.pi.sessions import info, transcript
from switchtower.protocols.pi.sessions.files import SessionFileLocation
from switchtower.protocols.pi.sessions.info import make_assistant_info
from switchtower.protocols.pi.sessions.loaded import LoadedSession, get_session_name

MAX_STORED = 1_000
ENGINE, MODE, PROVIDER = "agent", "interactive", "auto"


class SessionHandlers:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    def list_sessions(self, request: inbound.PiRequest, client: Client) -> ports.HandlerResult:
        return ports.HandlerResult(data={"sessions": self._context.sessions.list_infos()})

    async def create_session(self, request: inbound.PiRequest, client: Client) -> ports.HandlerResult:
        body = request.body
        assert isinstance(body, pi_messages.CreateSession)
        cwd = body.cwd or client.cwd or self._context.settings.default_cwd
        program = user_actions.parse_program(body.engine, body.command)
        command = self._build_start_command(client, cwd, preset=body.preset, program=program)
        return await self._start_and_announce(request, client, command, body.sessionId)

    async def _start_and_announce(
        self, request: inbound.PiRequest, client: Client, command: commands.StartSession, name: str | None
    ) -> ports.HandlerResult:
        """Starts a session under this name and announces it."""
        hall = self._context
        with hall.sessions.reserve(name):
            if name is None:
                session_id = await self._submit_start(request, client, command, hall.service.mint("sess"), None)
            else:
                # The core's own id is a name too, even of a session that is not loaded.
                taken = await hall.service.find_card(name)
                if taken is not None and taken.loaded is not False:
                    raise PiCommandError(pi_errors.format_session_exists(name))
                session_id = await self._start_named(request, client, command, name)
            standing = await hall.sessions.refresh(session_id)
        return self.make_started_result(standing)

    async def _start_named(self, request: inbound.PiRequest, client: Client, command: commands.StartSession, name: str) -> str:
        """The session's id is derived from its name, so that one of two nodes which start the same session fails."""
        session_id = ids.make_named_id("sess", name, await self._find_unused_generation(name))
        try:
            return await self._submit_start(request, client, command, session_id, name)
        except errors.InvalidCommand:
            # A session with that id may be in the process of being removed. A command that is invalid fails again.
            return await self._submit_start(request, client, command, self._context.service.mint("sess"), name)

    async def _find_unused_generation(self, name: str) -> int:
        """Returns the number of sessions that have had this name, or any other number that none of them has."""
        used, unused = -1, 0
        while await self._context.service.find_card(ids.make_named_id("sess", name, unused)) is not None:
            used, unused = unused, 2 * unused + 1
        while unused - used > 1:
            between = (used + unused) // 2
            if await self._context.service.find_card(ids.make_named_id("sess", name, between)) is None:
                unused = between
            else:
                used = between
        return unused

    async def _submit_start(
        self, request: inbound.PiRequest, client: Client, command: commands.StartSession, session_id: str, name: str | None
    ) -> str:
        hall = self._context
        receipts = hall.make_start_receipts(request, client, session_id=name or session_id)
        await hall.service.host_services.look_up_model(command)
        prepared = hall.service.host_services.prepare_session(replace(command, session_id=session_id, alias=name))
        await hall.submit(replace(prepared, receipts=receipts, id_is_fresh=name is None))
        return session_id

    def make_started_result(self, loaded: LoadedSession) -> ports.HandlerResult:
        return ports.HandlerResult(
            data={"sessionId": loaded.name, "sessionInfo": loaded.info},
            session_id=loaded.name,
            announcements=(encode_session_created(loaded.info),),
        )

    async def delete_session(self, request: inbound.PiRequest, client: Client) -> ports.HandlerResult:
        """pi-server 17.1: unloads the session, after its run has ended."""
        name = request.session_id
        assert name is not None
        standing = self._context.sessions.find_by_name(name)
        if standing is None or not standing.loaded:
            raise PiCommandError(pi_errors.format_session_not_found(name))
        if standing.run_id is not None:
            raise SessionBusy(self._context.sessions.wait_until_idle(standing.id))
        if standing.shells:
            raise SessionBusy(_wait_for(self._context.sessions.wait_for_shell_end(standing.shells[0])))
        receipts = self._context.make_start_receipts(request, client, done=True)
        await self._context.submit(commands.UnloadSession(session_id=standing.id, actor=client.actor, receipts=receipts))
        self._context.bash_breaker.forget(standing.id)
        return ports.HandlerResult(data={"deleted": True}, announcements=(encode_session_deleted(name),), settled=True)

    async def switch_session(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        await client.follow(loaded)
        now = self._context.sessions.find_by_id(loaded.id)
        return ports.HandlerResult(data={"sessionInfo": loaded.info if now is None else now.info})

    async def list_stored_sessions(self, request: inbound.PiRequest, client: Client) -> ports.HandlerResult:
        cards = await self._context.service.list_cards(MAX_STORED, any_id=True)
        return ports.HandlerResult(data={"sessions": await asyncio.to_thread(self._list_stored, cards)})

    def _list_stored(self, cards: list[journal.Card]) -> list[event_messages.StoredSessionInfo]:
        """Blocks: it reads the file system."""
        files = self._context.files
        listed = []
        for card in cards:
            path = files.make_path(card.session_id, get_session_name(card))
            listed.append(info.make_stored_session_info(card, path, name=get_session_name(card), file_exists=files.exists(path)))
        for stored in files.list_stored([card.workspace.root for card in cards]):
            listed.append(
                event_messages.StoredSessionInfo(
                    sessionId=stored.session_id,
                    sessionName=stored.name or UNSET,
                    sessionFile=stored.path,
                    sessionPath=stored.path,
                    cwd=stored.cwd,
                    createdAt=info.format_iso_time(stored.created_at_ms),
                    fileExists=True,
                    messageCount=UNSET if stored.messages is None else stored.messages,
                )
            )
        return listed

    async def load_session(self, request: inbound.PiRequest, client: Client) -> ports.HandlerResult:
        body = request.body
        assert isinstance(body, pi_messages.LoadSession)
        place = self._context.files.resolve_path(body.sessionPath)
        if place.session_id is not None and place.until_clearing is None:
            card = await self._context.service.find_card(place.session_id)
            if card is None:
                raise PiCommandError(pi_errors.format_session_not_found(place.session_id))
            if body.sessionId in (None, get_session_name(card)):
                return await self._load_own_session(request, client, card)
        taken = await self._load_conversation(place)
        command = self._build_start_command(
            client, taken.cwd, conversation=taken.messages, title=taken.title, parent=taken.parent
        )
        if taken.parent is not None:
            command = _inherit_settings(command, await self._context.service.get_session(taken.parent))
        else:
            command = self._apply_model(command, taken)
        # pi-server 20.2: a file's session keeps its id, so that loading it twice is refused.
        return await self._start_and_announce(request, client, command, body.sessionId or taken.session_id)

    async def _load_own_session(self, request: inbound.PiRequest, client: Client, card: journal.Card) -> ports.HandlerResult:
        hall, name = self._context, get_session_name(card)
        standing = hall.sessions.find_by_name(name)
        if standing is not None and standing.loaded:
            raise PiCommandError(pi_errors.format_session_exists(name))
        receipts = hall.make_start_receipts(request, client, session_id=name)
        await hall.sessions.load(card.session_id, name, client.actor, receipts)
        return self.make_started_result(await hall.sessions.refresh(card.session_id))

    def _apply_model(self, command: commands.StartSession, taken: "StoredConversation") -> commands.StartSession:
        """Returns the command with the model and the thinking level that the file names, if this server has that model."""
        command = replace(command, thinking=taken.thinking if taken.thinking in pi_messages.LEVELS else None)
        if taken.provider is None or taken.model is None:
            return command
        wanted = commands.ConfigureSession(session_id="", provider=taken.provider, model=taken.model)
        try:
            self._context.service.host_services.check_configuration(wanted)
        except errors.CoreError:
            return command
        return replace(command, provider=taken.provider, model=taken.model)

    async def _load_conversation(self, place: SessionFileLocation) -> "StoredConversation":
        if place.session_id is None:
            found = await asyncio.to_thread(self._context.files.read_session, place)
            return StoredConversation(
                title=found.name,
                cwd=found.cwd or self._context.settings.default_cwd,
                messages=found.messages,
                session_id=found.session_id if inbound.is_session_id(found.session_id) else None,
                provider=found.provider,
                model=found.model,
                thinking=found.thinking,
            )
        try:
            session = await self._context.service.get_session(place.session_id)
        except errors.SessionNotFound:
            raise PiCommandError(pi_errors.format_session_not_found(place.session_id)) from None
        told = await self._context.load_transcript(place.session_id, until_clearing=place.until_clearing)
        return StoredConversation(
            title=session.title or None, cwd=session.workspace.root, messages=told.list_imported(), parent=session.id
        )

    def _build_start_command(
        self,
        client: Client,
        cwd: str,
        *,
        conversation: tuple[events.MessageImported, ...] = (),
        title: str | None = None,
        parent: str | None = None,
        preset: str | None = None,
        program: events.Program | None = None,
    ) -> commands.StartSession:
        token = self._context.service.mint_secret("att")  # it is not given out: over other protocols only the owner attaches
        return commands.StartSession(
            session_id="",  # it is chosen on submission
            actor=client.actor,
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

    async def new_session(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, pi_messages.NewSession)
        return await self._replace(request, client, loaded, request.body.parentSession, ())

    async def switch_session_file(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, pi_messages.SwitchSessionFile)
        path = request.body.sessionPath
        taken = await self._load_conversation(self._context.files.resolve_path(path))
        return await self._replace(request, client, loaded, path, taken.messages)

    async def _replace(
        self,
        request: inbound.PiRequest,
        client: Client,
        loaded: LoadedSession,
        origin: str | None,
        conversation: tuple[events.MessageImported, ...],
        data: dict[str, object] | None = None,
    ) -> ports.HandlerResult:
        data = data or {"cancelled": False}
        command = commands.ReplaceConversation(
            session_id=loaded.id,
            actor=client.actor,
            origin=origin,
            conversation=conversation,
            receipts=self._context.make_start_receipts(request, client, data=data),
        )
        try:
            await self._context.submit(command)
        except errors.RunInProgress:
            raise SessionBusy(self._context.sessions.wait_until_idle(loaded.id)) from None
        return ports.HandlerResult(data=data)

    async def fork(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        """The session becomes the fork, as pi's clients expect: they continue in it. Messages after the fork point stay
        stored."""
        assert isinstance(request.body, pi_messages.Fork)
        hall = self._context
        if loaded.run_id is not None:
            raise SessionBusy(hall.sessions.wait_until_idle(loaded.id))
        try:
            fork = transcript.TranscriptFork(
                request.body.entryId, make_assistant_info(hall.models.get_model(loaded.provider, loaded.model))
            )
            async for entry in hall.read_entries(loaded.id):
                if fork.add(entry):
                    break
        except transcript.UnknownEntry as unknown:
            raise PiCommandError(str(unknown)) from None
        if fork.text is None:
            raise PiCommandError(str(transcript.UnknownEntry()))
        origin = hall.files.make_path(loaded.id, loaded.name, until_clearing=loaded.clearings + 1)
        data: dict[str, object] = {"text": fork.text, "cancelled": False, "sessionId": loaded.name}
        return await self._replace(request, client, loaded, origin, fork.list_imported(), data)

    async def get_fork_messages(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        told = await self._context.load_transcript(loaded.id)
        return ports.HandlerResult(data={"messages": told.points})

    async def list_session_files(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        """Lists the conversations that this session could be switched to: those of its folder, and its own earlier ones."""
        cards = await self._context.service.list_cards(MAX_STORED, any_id=True)
        return ports.HandlerResult(data={"files": await asyncio.to_thread(self._list_files, loaded, cards)})

    def _list_files(self, loaded: LoadedSession, cards: list[journal.Card]) -> list[dict[str, object]]:
        """Blocks: it reads the file system. Our own conversations are in the journal, whether or not they were exported to a
        file."""
        files = self._context.files
        found = [
            (files.make_path(card.session_id, get_session_name(card)), card.updated_at_ms)
            for card in cards
            if card.workspace.root == loaded.root
        ]
        now_ms = self._context.service.now_ms()
        found += [
            (files.make_path(loaded.id, loaded.name, until_clearing=number), now_ms) for number in range(1, loaded.clearings + 1)
        ]
        listed = [(path, modified_at_ms, files.exists(path)) for path, modified_at_ms in found]
        listed += [
            (stored.path, stored.modified_at_ms, True) for stored in files.list_stored([loaded.root]) if stored.cwd == loaded.root
        ]
        return [
            {
                "path": path,
                "name": path.rpartition("/")[2],
                "modifiedAt": info.format_iso_time(modified_at_ms),
                "fileExists": exists,
            }
            for path, modified_at_ms, exists in listed
        ]


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A stored conversation that a session starts with, or is switched to."""

    title: str | None
    cwd: str
    messages: tuple[events.MessageImported, ...]
    session_id: str | None = None
    """The id that pi's own file has for the session."""
    parent: str | None = None
    """Our session that the conversation comes from."""
    provider: str | None = None
    model: str | None = None
    thinking: str | None = None


def _inherit_settings(command: commands.StartSession, parent: Session) -> commands.StartSession:
    """A session that continues another inherits its settings: a fork does not loosen a policy."""
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


async def _wait_for(future: Awaitable[object]) -> None:
    await future
