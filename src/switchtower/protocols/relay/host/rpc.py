"""Relay's RPCs on this host: each is journalled as a call and its result, gated where the document says so, and answered in
full only to who asked. What the journal keeps of a result is its beginning."""

import asyncio
import hashlib
import shlex
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, assert_never

import msgspec

from switchtower.core import commands, events, journal, terminals, tower
from switchtower.core import errors as core_errors
from switchtower.protocols.relay import errors, messages, names
from switchtower.protocols.relay.gate import Gate
from switchtower.protocols.relay.host.commands import RunCommands
from switchtower.protocols.relay.host.settings import HostSettings
from switchtower.tools import workbench
from switchtower.tools.sandboxes import sandbox as sandboxes

KEPT_TEXT = 2_000
"""How much of each text in a result the journal keeps."""
KEPT_ITEMS = 20
MOST_LISTED = 1_000
MOST_AT_ONCE = 256

Result = msgspec.Struct | dict[str, Any]
Done = TypeVar("Done")


class HostRpc:
    def __init__(self, tower_: tower.Tower, settings: HostSettings) -> None:
        self._tower = tower_
        self._settings = settings
        self._gate = Gate(tower_, settings.approval_timeout_ms)
        self.commands = RunCommands(tower_)
        self._at_work = 0

    @property
    def host_id(self) -> str:
        return self._settings.host_id

    def close(self) -> None:
        self._gate.close()

    def lives_here(self, card: journal.Card) -> bool:
        """What has no home is anybody's, so ours: it comes to live here when something is done with it."""
        node_id = self._settings.node_id
        return card.host is None and (node_id is None or card.home in (None, node_id))

    async def on_run(
        self, type_: str, card: journal.Card, asked: messages.RunRpc, actor: events.Actor, *, tool: str | None = None
    ) -> Result:
        """`tool` is what the journal calls it, when that is not the type."""
        tool = tool or type_
        cwd = card.workspace.root
        match asked:
            case messages.RunsList():
                return await self._runs()
            case messages.RunStop():
                return {"signal": await self.commands.stop(card, asked.signal, actor)}
            case messages.FsRead():
                return await self._errand(card, tool, asked, actor, lambda: workbench.read(cwd, asked.path))
            case messages.FsSearch():
                return await self._errand(card, tool, asked, actor, lambda: workbench.search(cwd, asked.q))
            case messages.FsList():
                return await self._errand(card, tool, asked, actor, lambda: workbench.list_folder(cwd, asked.path or "."))
            case messages.GitStatus():
                return await self._errand(card, tool, asked, actor, lambda: workbench.git_status(cwd))
            case messages.GitDiff():
                return await self._errand(card, tool, asked, actor, lambda: workbench.git_diff(cwd, asked.path))
            case messages.FsWrite():
                # What cannot be done is refused before a person is asked. It is checked again when it is done.
                await self._plain(workbench.check_write(cwd, asked.path, asked.content))

                async def write() -> Result:
                    preview = workbench.preview_of_write(asked.path, asked.content)
                    subject = f"{asked.path}\0{asked.content}"
                    await self._permit(card, tool, asked, title=f"Write {asked.path}", args=preview, subject=subject)
                    return await workbench.write(cwd, asked.path, asked.content)

                return await self._errand(card, tool, asked, actor, write)
            case messages.Bash():
                if not asked.cmd.strip():
                    raise errors.Refused("`cmd` is empty")

                async def bash() -> Result:
                    await self._permit(card, tool, asked, title=f"Run {asked.cmd}", args={"cmd": asked.cmd}, subject=asked.cmd)
                    run_id = card.active_run_id or card.session_id
                    where = await self._sandbox_of(card)
                    return await workbench.bash(cwd, asked.cmd, run_id, timeout_s=self._settings.bash_timeout_s, sandbox=where)

                return await self._errand(card, tool, asked, actor, bash)
            case _:
                assert_never(asked)

    async def on_host(self, type_: str, asked: messages.HostRpc, actor: events.Actor) -> Result:
        settings = self._settings
        match asked:
            case messages.RunStart():
                return {"run_id": names.run_of(await self.start_run(asked, actor))}
            case messages.LogsTail():
                lines, most = asked.lines or 200, asked.max_bytes or 200_000
                return await self._plain(workbench.logs_tail(settings.log_path, lines, most))
            case messages.HostLook():
                return await self._plain(self._look(type_))
            case _:
                assert_never(asked)

    async def start_run(self, asked: messages.RunStart, actor: events.Actor) -> str:
        """The id of the new session."""
        session_id = self._tower.mint("sess")
        token = self._tower.mint_secret("att")  # nobody knows it: over other doors only the owner attaches
        try:
            command_line = asked.cmd if asked.cmd.strip() else shlex.quote(asked.tool) if asked.tool.strip() else ""
            if not command_line:
                raise errors.Refused("`cmd` and `tool` are empty")
            program = terminals.program(command_line, tool=asked.tool or None, cols=asked.cols, rows=asked.rows)
            command = commands.StartSession(
                session_id=session_id,
                actor=actor,
                engine="pty",
                mode="interactive",
                provider="terminal",
                workspace=events.Workspace(root=asked.cwd or self._settings.default_cwd),
                attach_token_sha256=hashlib.sha256(token.encode()).hexdigest(),
                id_is_fresh=True,
                program=program,
            )
            await self._tower.ask(self._tower.workshop.prepared(command))
        except core_errors.CoreError as refusal:
            raise errors.Refused(errors.of(refusal)) from refusal
        return session_id

    async def _errand(
        self,
        card: journal.Card,
        tool: str,
        asked: messages.RunRpc,
        actor: events.Actor,
        work: Callable[[], Awaitable[Result]],
    ) -> Result:
        """Does the work between a journalled call and its journalled result."""
        if self._at_work >= MOST_AT_ONCE:
            raise errors.Refused(errors.TOO_MANY_CALLS)
        self._at_work += 1
        try:
            return await self._journalled(card, tool, asked, actor, work)
        finally:
            self._at_work -= 1

    async def _journalled(
        self,
        card: journal.Card,
        tool: str,
        asked: messages.RunRpc,
        actor: events.Actor,
        work: Callable[[], Awaitable[Result]],
    ) -> Result:
        request_id = asked.request_id
        started = commands.StartErrand(
            session_id=card.session_id, actor=actor, errand_id=request_id, tool=tool, args=_kept_args(asked)
        )
        try:
            await self._tower.ask(started)
        except core_errors.CoreError as refusal:
            raise errors.Refused(errors.of(refusal)) from refusal
        began = time.monotonic()
        result: Result | None = None
        problem = errors.INTERNAL
        try:
            result = await work()
        except workbench.Refused as refusal:
            problem = refusal.message
            raise errors.Refused(problem) from refusal
        except core_errors.CoreError as refusal:
            problem = errors.of(refusal)
            raise errors.Refused(problem) from refusal
        except errors.Refused as refusal:
            problem = refusal.text
            raise
        finally:
            finished = commands.FinishErrand(
                session_id=card.session_id,
                actor=actor,
                errand_id=request_id,
                ok=result is not None,
                duration_ms=int((time.monotonic() - began) * 1_000),
                result=None if result is None else kept(result),
                error=None if result is not None else problem,
            )
            # Told also when whoever asked has gone, or we are being stopped.
            self._tower.submit(finished, lambda _: None)
        return result

    async def _permit(
        self,
        card: journal.Card,
        tool: str,
        asked: messages.FsWrite | messages.Bash,
        *,
        title: str,
        args: dict[str, Any],
        subject: str,
    ) -> None:
        if card.active_run_id is None:
            raise errors.Refused(errors.NOT_ACTIVE)
        shown = " ".join(title.split())[:200]
        await self._gate.pass_through(
            card.session_id, card.active_run_id, asked.request_id, tool=tool, title=shown, args=args, subject=subject
        )

    async def _sandbox_of(self, card: journal.Card) -> sandboxes.Sandbox:
        session = await self._tower.session(card.session_id)
        try:
            return await asyncio.to_thread(sandboxes.choose, session.sandbox, network=self._settings.sandbox_network)
        except core_errors.SandboxUnavailable as refusal:
            raise errors.Refused(errors.of(refusal)) from refusal

    async def _plain(self, work: Awaitable[Done]) -> Done:
        try:
            return await work
        except workbench.Refused as refusal:
            raise errors.Refused(refusal.message) from refusal

    async def _look(self, type_: str) -> Result:
        settings = self._settings
        match type_:
            case "rpc.host.info":
                return await workbench.host_info(settings.host_id, settings.version)
            case "rpc.host.doctor":
                return await workbench.host_doctor(settings.host_id, settings.version)
            case _:
                return await workbench.host_capabilities(
                    settings.host_id,
                    settings.version,
                    server_base_url=settings.server_base_url,
                    local_unix_socket=settings.local_unix_socket,
                    spool_db_path=settings.journal_path,
                    log_path=settings.log_path,
                    supported_rpc=messages.RPCS,
                )

    async def _runs(self) -> Result:
        cards = await self._tower.cards(MOST_LISTED)
        return {
            "runs": [
                {
                    "run_id": names.run_of(card.session_id),
                    "pid": card.pid,
                    "tool": card.tool or card.engine,
                    "cwd": card.workspace.root,
                    "awaiting_input": card.waits is not None or card.pending_approval_id is not None,
                    "pending_request_id": names.request_of(card.pending_approval_id) if card.pending_approval_id else None,
                }
                for card in cards
                if self.lives_here(card) and card.active_run_id is not None
            ]
        }


def _kept_args(asked: messages.RunRpc) -> dict[str, Any]:
    """The arguments as the journal keeps them: a file's content only by its beginning."""
    args: dict[str, Any] = kept(asked)
    args.pop("request_id", None)
    args.pop("actor", None)
    return args


def kept(value: Any) -> Any:
    """A result with every text and every list cut to what the journal keeps."""
    match value:
        case str():
            return value if len(value) <= KEPT_TEXT else f"{value[:KEPT_TEXT]}… ({len(value)} characters)"
        case msgspec.Struct():
            return kept(msgspec.to_builtins(value))
        case dict():
            return {name: kept(held) for name, held in value.items()}
        case list() | tuple():
            return [kept(item) for item in value[:KEPT_ITEMS]]
        case _:
            return value
