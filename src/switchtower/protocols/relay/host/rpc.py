"""Relay's RPCs on this host: each is journalled as a call and its result, gated as the document specifies, and answered in full
only to the client that called. The journal keeps only the start of a result."""

import asyncio
import hashlib
import shlex
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, assert_never

import msgspec

from switchtower.core import commands, events
from switchtower.core import errors as core_errors
from switchtower.core.ports import journal, session_service
from switchtower.core.rules import user_actions
from switchtower.protocols.relay import errors, messages, wire_values
from switchtower.protocols.relay.host.gate import Gate, RunCommands
from switchtower.protocols.relay.settings import HostSettings
from switchtower.tools import remote_ops
from switchtower.tools.sandboxes import sandbox as sandboxes

MAX_STORED_TEXT = 2_000
"""Characters of each text in a result that the journal keeps."""
MAX_STORED_ITEMS = 20
MAX_LISTED_RUNS = 1_000
MAX_CONCURRENT_CALLS = 256

RpcResult = msgspec.Struct | dict[str, Any]
CallResultT = TypeVar("CallResultT")


class HostRpcHandler:
    def __init__(self, tower_: session_service.SessionService, settings: HostSettings) -> None:
        self._tower = tower_
        self._settings = settings
        self._gate = Gate(tower_, settings.approval_timeout_ms)
        self.commands = RunCommands(tower_)
        self._tasks = 0

    @property
    def host_id(self) -> str:
        return self._settings.host_id

    def close(self) -> None:
        self._gate.close()

    def is_local(self, card: journal.Card) -> bool:
        """A session without an owner may be taken by any node, so also by ours: this node becomes its owner when it acts on
        it."""
        node_id = self._settings.node_id
        return card.host is None and (node_id is None or card.home in (None, node_id))

    async def call_on_run(
        self, type_: str, card: journal.Card, request: messages.RunRpc, actor: events.Actor, *, tool: str | None = None
    ) -> RpcResult:
        """`tool` is the journal's name of the call, when it differs from the type."""
        tool = tool or type_
        cwd = card.workspace.root
        match request:
            case messages.RunsList():
                return await self._list_runs()
            case messages.RunStop():
                return {"signal": await self.commands.stop(card, request.signal, actor)}
            case messages.FsRead():
                return await self._run_remote_call(card, tool, request, actor, lambda: remote_ops.read_file(cwd, request.path))
            case messages.FsSearch():
                return await self._run_remote_call(card, tool, request, actor, lambda: remote_ops.search_folder(cwd, request.q))
            case messages.FsList():
                return await self._run_remote_call(
                    card, tool, request, actor, lambda: remote_ops.list_folder(cwd, request.path or ".")
                )
            case messages.GitStatus():
                return await self._run_remote_call(card, tool, request, actor, lambda: remote_ops.read_git_status(cwd))
            case messages.GitDiff():
                return await self._run_remote_call(
                    card, tool, request, actor, lambda: remote_ops.read_git_diff(cwd, request.path)
                )
            case messages.FsWrite():
                # An impossible write is refused before a user is asked. It is checked again when it is carried out.
                await self._run_plain(remote_ops.check_write(cwd, request.path, request.content))

                async def write() -> RpcResult:
                    preview = remote_ops.preview_write(request.path, request.content)
                    subject = f"{request.path}\0{request.content}"
                    await self._wait_for_permission(
                        card, tool, request, title=f"Write {request.path}", args=preview, subject=subject
                    )
                    return await remote_ops.write_file(cwd, request.path, request.content)

                return await self._run_remote_call(card, tool, request, actor, write)
            case messages.Bash():
                if not request.cmd.strip():
                    raise errors.RelayError("`cmd` is empty")

                async def bash() -> RpcResult:
                    await self._wait_for_permission(
                        card, tool, request, title=f"Run {request.cmd}", args={"cmd": request.cmd}, subject=request.cmd
                    )
                    run_id = card.active_run_id or card.session_id
                    where = await self._get_sandbox(card)
                    return await remote_ops.run_bash(
                        cwd, request.cmd, run_id, timeout_s=self._settings.bash_timeout_s, sandbox=where
                    )

                return await self._run_remote_call(card, tool, request, actor, bash)
            case _:
                assert_never(request)

    async def call_on_host(self, type_: str, request: messages.HostRpc, actor: events.Actor) -> RpcResult:
        settings = self._settings
        match request:
            case messages.RunStart():
                return {"run_id": wire_values.format_run_id(await self.start_run(request, actor))}
            case messages.LogsTail():
                lines, most = request.lines or 200, request.max_bytes or 200_000
                return await self._run_plain(remote_ops.read_log_tail(settings.log_path, lines, most))
            case messages.HostLook():
                return await self._run_plain(self._describe_host(type_))
            case _:
                assert_never(request)

    async def start_run(self, request: messages.RunStart, actor: events.Actor) -> str:
        """Returns the id of the new session."""
        session_id = self._tower.mint("sess")
        token = self._tower.mint_secret("att")  # it is not given out: over other protocols only the owner attaches
        try:
            command_line = request.cmd if request.cmd.strip() else shlex.quote(request.tool) if request.tool.strip() else ""
            if not command_line:
                raise errors.RelayError("`cmd` and `tool` are empty")
            program = user_actions.make_program(command_line, tool=request.tool or None, cols=request.cols, rows=request.rows)
            command = commands.StartSession(
                session_id=session_id,
                actor=actor,
                engine="pty",
                mode="interactive",
                provider="terminal",
                workspace=events.Workspace(root=request.cwd or self._settings.default_cwd),
                attach_token_sha256=hashlib.sha256(token.encode()).hexdigest(),
                id_is_fresh=True,
                program=program,
            )
            await self._tower.ask(self._tower.host_services.prepare_session(command))
        except core_errors.CoreError as refusal:
            raise errors.RelayError(errors.convert_core_error(refusal)) from refusal
        return session_id

    async def _run_remote_call(
        self,
        card: journal.Card,
        tool: str,
        request: messages.RunRpc,
        actor: events.Actor,
        work: Callable[[], Awaitable[RpcResult]],
    ) -> RpcResult:
        """Runs the work between a journalled call and its journalled result."""
        if self._tasks >= MAX_CONCURRENT_CALLS:
            raise errors.RelayError(errors.TOO_MANY_CALLS)
        self._tasks += 1
        try:
            return await self._journal_call(card, tool, request, actor, work)
        finally:
            self._tasks -= 1

    async def _journal_call(
        self,
        card: journal.Card,
        tool: str,
        request: messages.RunRpc,
        actor: events.Actor,
        work: Callable[[], Awaitable[RpcResult]],
    ) -> RpcResult:
        request_id = request.request_id
        started = commands.StartRemoteCall(
            session_id=card.session_id, actor=actor, errand_id=request_id, tool=tool, args=_truncate_args(request)
        )
        try:
            await self._tower.ask(started)
        except core_errors.CoreError as refusal:
            raise errors.RelayError(errors.convert_core_error(refusal)) from refusal
        began = time.monotonic()
        result: RpcResult | None = None
        problem = errors.INTERNAL
        try:
            result = await work()
        except remote_ops.OperationRefused as refusal:
            problem = refusal.message
            raise errors.RelayError(problem) from refusal
        except core_errors.CoreError as refusal:
            problem = errors.convert_core_error(refusal)
            raise errors.RelayError(problem) from refusal
        except errors.RelayError as refusal:
            problem = refusal.text
            raise
        finally:
            finished = commands.FinishRemoteCall(
                session_id=card.session_id,
                actor=actor,
                errand_id=request_id,
                ok=result is not None,
                duration_ms=int((time.monotonic() - began) * 1_000),
                result=None if result is None else truncate_result(result),
                error=None if result is not None else problem,
            )
            # This is recorded even when the client has disconnected, or the daemon is stopping.
            self._tower.submit(finished, lambda _: None)
        return result

    async def _wait_for_permission(
        self,
        card: journal.Card,
        tool: str,
        request: messages.FsWrite | messages.Bash,
        *,
        title: str,
        args: dict[str, Any],
        subject: str,
    ) -> None:
        if card.active_run_id is None:
            raise errors.RelayError(errors.NOT_ACTIVE)
        shown = " ".join(title.split())[:200]
        await self._gate.wait_for_approval(
            card.session_id, card.active_run_id, request.request_id, tool=tool, title=shown, args=args, subject=subject
        )

    async def _get_sandbox(self, card: journal.Card) -> sandboxes.Sandbox:
        session = await self._tower.get_session(card.session_id)
        try:
            return await asyncio.to_thread(sandboxes.choose_sandbox, session.sandbox, network=self._settings.sandbox_network)
        except core_errors.SandboxUnavailable as refusal:
            raise errors.RelayError(errors.convert_core_error(refusal)) from refusal

    async def _run_plain(self, work: Awaitable[CallResultT]) -> CallResultT:
        try:
            return await work
        except remote_ops.OperationRefused as refusal:
            raise errors.RelayError(refusal.message) from refusal

    async def _describe_host(self, type_: str) -> RpcResult:
        settings = self._settings
        match type_:
            case "rpc.host.info":
                return await remote_ops.read_host_info(settings.host_id, settings.version)
            case "rpc.host.doctor":
                return await remote_ops.diagnose_host(settings.host_id, settings.version)
            case _:
                return await remote_ops.read_host_capabilities(
                    settings.host_id,
                    settings.version,
                    server_base_url=settings.server_base_url,
                    local_unix_socket=settings.local_unix_socket,
                    spool_db_path=settings.journal_path,
                    log_path=settings.log_path,
                    supported_rpc=messages.RPCS,
                )

    async def _list_runs(self) -> RpcResult:
        cards = await self._tower.list_cards(MAX_LISTED_RUNS)
        return {
            "runs": [
                {
                    "run_id": wire_values.format_run_id(card.session_id),
                    "pid": card.pid,
                    "tool": card.tool or card.engine,
                    "cwd": card.workspace.root,
                    "awaiting_input": card.waits is not None or card.pending_approval_id is not None,
                    "pending_request_id": wire_values.format_request_id(card.pending_approval_id)
                    if card.pending_approval_id
                    else None,
                }
                for card in cards
                if self.is_local(card) and card.active_run_id is not None
            ]
        }


def _truncate_args(request: messages.RunRpc) -> dict[str, Any]:
    """Returns the arguments as the journal keeps them: of a file's content only the start."""
    args: dict[str, Any] = truncate_result(request)
    args.pop("request_id", None)
    args.pop("actor", None)
    return args


def truncate_result(value: Any) -> Any:
    """Returns a result with every text and every list cut to the length that the journal keeps."""
    match value:
        case str():
            return value if len(value) <= MAX_STORED_TEXT else f"{value[:MAX_STORED_TEXT]}… ({len(value)} characters)"
        case msgspec.Struct():
            return truncate_result(msgspec.to_builtins(value))
        case dict():
            return {name: truncate_result(held) for name, held in value.items()}
        case list() | tuple():
            return [truncate_result(item) for item in value[:MAX_STORED_ITEMS]]
        case _:
            return value
