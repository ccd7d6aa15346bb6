"""Handlers that change nothing: state, messages, statistics, available models and tools; exports of a session; and the server's
metrics and health (pi-server 17.1, 21).

Handlers that configure a session from its next run on: its model, thinking level and name, automatic compaction and retry."""

import asyncio
import os
from pathlib import Path

from msgspec import UNSET, structs

from switchtower.core import commands, errors
from switchtower.core.ports.host_services import BreakerState, TemplateInfo
from switchtower.protocols.pi import errors as pi_errors
from switchtower.protocols.pi import event_messages, inbound, messages
from switchtower.protocols.pi.dispatch import ports
from switchtower.protocols.pi.errors import PiCommandError
from switchtower.protocols.pi.handlers.context import Client, HandlerContext
from switchtower.protocols.pi.sessions import info, jsonl
from switchtower.protocols.pi.sessions.html_export import render_page
from switchtower.protocols.pi.sessions.loaded import LoadedSession

_LEVELS = messages.LEVELS


class ConfigurationHandlers:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    async def set_model(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        body = request.body
        assert isinstance(body, messages.SetModel)
        return ports.HandlerResult(data={"model": await self._set_model(request, client, loaded, body.provider, body.modelId)})

    async def cycle_model(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, messages.CycleModel)
        models = await self._context.models.refresh()
        if len(models) < 2:
            return ports.HandlerResult(data=None)
        now = self._context.models.get_model(loaded.provider, loaded.model)
        place = next((index for index, model in enumerate(models) if (model.provider, model.id) == (now.provider, now.id)), -1)
        step = -1 if request.body.direction == "backward" else 1
        chosen = models[(place + step) % len(models)]
        model = await self._set_model(request, client, loaded, chosen.provider, chosen.id)
        level = loaded.thinking or info.DEFAULT_THINKING
        return ports.HandlerResult(data={"model": model, "thinkingLevel": level, "isScoped": False})

    async def _set_model(
        self, request: inbound.PiRequest, client: Client, loaded: LoadedSession, provider: str, model: str
    ) -> event_messages.Model:
        command = self._build_command(request, client, loaded, provider=provider, model=model)
        await self._context.service.host_services.look_up_model(command)
        try:
            self._context.service.host_services.check_configuration(command)
        except errors.CoreError:
            raise PiCommandError(pi_errors.format_model_not_found(provider, model)) from None
        await self._context.submit(command)
        return self._context.models.get_model(provider, model)

    async def set_thinking_level(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, messages.SetThinkingLevel)
        await self._set_thinking(request, client, loaded, request.body.level)
        return ports.HandlerResult()

    async def cycle_thinking_level(
        self, request: inbound.PiRequest, client: Client, loaded: LoadedSession
    ) -> ports.HandlerResult:
        now = loaded.thinking or info.DEFAULT_THINKING
        following = _LEVELS[(_LEVELS.index(now) + 1) % len(_LEVELS)] if now in _LEVELS else _LEVELS[0]
        await self._set_thinking(request, client, loaded, following)
        return ports.HandlerResult(data={"level": following})

    async def _set_thinking(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession, level: str) -> None:
        level = "off" if level == "none" else level
        await self._context.submit(self._build_command(request, client, loaded, thinking=level))

    async def set_session_name(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, messages.SetSessionName)
        await self._context.submit(self._build_command(request, client, loaded, title=request.body.name))
        return ports.HandlerResult()

    async def set_auto_compaction(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, messages.SetAutoCompaction)
        await self._context.submit(self._build_command(request, client, loaded, auto_compact=request.body.enabled))
        return ports.HandlerResult()

    async def set_auto_retry(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, messages.SetAutoRetry)
        await self._context.submit(self._build_command(request, client, loaded, auto_retry=request.body.enabled))
        return ports.HandlerResult()

    def _build_command(
        self,
        request: inbound.PiRequest,
        client: Client,
        loaded: LoadedSession,
        *,
        provider: str | None = None,
        model: str | None = None,
        thinking: str | None = None,
        title: str | None = None,
        auto_compact: bool | None = None,
        auto_retry: bool | None = None,
    ) -> commands.ConfigureSession:
        """The command has no receipt of its start: repeating it gives the same result."""
        return commands.ConfigureSession(
            session_id=loaded.id,
            actor=client.actor,
            provider=provider,
            model=model,
            thinking=thinking,
            title=title,
            auto_compact=auto_compact,
            auto_retry=auto_retry,
        )


class QueryHandlers:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    def get_state(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        return ports.HandlerResult(data=loaded.info)

    async def get_messages(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        transcript = await self._context.load_transcript(loaded.id)
        return ports.HandlerResult(data={"messages": transcript.list_messages()})

    async def get_last_assistant_text(
        self, request: inbound.PiRequest, client: Client, loaded: LoadedSession
    ) -> ports.HandlerResult:
        return ports.HandlerResult(data={"text": await self._context.load_last_assistant_text(loaded.id)})

    async def get_session_stats(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        session_id = loaded.id
        session = await self._context.service.get_session(session_id)
        path = self._context.files.make_path(session_id, loaded.name)
        return ports.HandlerResult(data=info.make_session_stats(session, path, name=loaded.name))

    async def get_context_usage(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        session = await self._context.service.get_session(loaded.id)
        window = self._context.models.get_model(loaded.provider, loaded.model).contextWindow
        return ports.HandlerResult(data=info.make_context_usage(session, window))

    # Discovery

    async def get_available_models(
        self, request: inbound.PiRequest, client: Client, loaded: LoadedSession
    ) -> ports.HandlerResult:
        return ports.HandlerResult(data={"models": await self._context.models.refresh()})

    async def get_commands(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        offers = await self._context.service.host_services.get_workspace(loaded.id).list_templates(loaded.root)
        return ports.HandlerResult(data={"commands": [_convert_template(offer, loaded.root) for offer in offers]})

    async def get_skills(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        offers = await self._context.service.host_services.get_workspace(loaded.id).list_templates(loaded.root)
        skills = [
            {
                "name": offer.name,
                "description": offer.description,
                "filePath": os.path.join(loaded.root, offer.path),  # noqa: PTH118 - an absolute one stays as it is
                "source": offer.origin,
            }
            for offer in offers
            if offer.kind == "skill"
        ]
        return ports.HandlerResult(data={"skills": skills})

    def get_tools(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        tools = self._context.service.host_services.list_tools()
        return ports.HandlerResult(data={"tools": [{"name": tool.name, "description": tool.description} for tool in tools]})

    # Export

    async def export_html(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, messages.ExportHtml)
        session_id = loaded.id
        page_by_default = Path(self._context.settings.exports_dir) / f"{loaded.name}.html"
        target = self._resolve_target(request.body.outputPath, loaded, page_by_default)
        session = await self._context.service.get_session(session_id)
        transcript = await self._context.load_transcript(session_id)
        await asyncio.to_thread(
            _write, target, render_page(loaded.info, info.make_session_stats(session), transcript.list_messages())
        )
        return ports.HandlerResult(data={"path": str(target)})

    async def export_jsonl(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        """Writes a file that real pi loads. Without a path it is the session's `sessionFile`, so that this file exists from then
        on."""
        assert isinstance(request.body, messages.ExportJsonl)
        file_by_default = Path(self._context.files.make_path(loaded.id, loaded.name))
        target = self._resolve_target(request.body.outputPath, loaded, file_by_default)
        session = await self._context.service.get_session(loaded.id)
        transcript = await self._context.load_transcript(loaded.id)
        lines = jsonl.export_jsonl(
            loaded.name,
            loaded.root,
            session.created_at_ms,
            transcript.list_messages(),
            name=session.title or None,
            model=None if loaded.info.model is UNSET else loaded.info.model,
            thinking=loaded.thinking,
        )
        await asyncio.to_thread(_write, target, b"".join(lines).decode())
        return ports.HandlerResult(data={"path": str(target)})

    def _resolve_target(self, asked: str | None, loaded: LoadedSession, by_default: Path) -> Path:
        """An export is written into the session's own folder or into ours, and nowhere else."""
        exports = Path(self._context.settings.exports_dir)
        if asked is None:
            return by_default
        if not asked.endswith(by_default.suffix) or "\0" in asked:
            raise PiCommandError(f"Validation failed: outputPath: must end with {by_default.suffix}")
        root = Path(os.path.realpath(loaded.root))
        target = Path(os.path.realpath(root / asked))
        if not any(target.is_relative_to(folder) for folder in (root, exports)):
            raise PiCommandError("Validation failed: outputPath: must be in the session's folder")
        return target


def _convert_template(offer: TemplateInfo, root: str) -> dict[str, str]:
    told = {"name": offer.name, "description": offer.description, "source": offer.kind}
    # An extension has no file that a client could open.
    return told if offer.kind == "extension" else {**told, "path": os.path.join(root, offer.path)}  # noqa: PTH118


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)  # the file appears complete or not at all
    except OSError as problem:
        raise PiCommandError(f"It could not be written to {target}: {problem.strerror}") from None


class ServerHandlers:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    def get_metrics(self, request: inbound.PiRequest, client: Client) -> ports.HandlerResult:
        hall = self._context
        assert hall.dispatcher is not None
        own = hall.dispatcher.collect_metrics(client)
        stores = structs.asdict(own.stores)
        stores["version"] = {"sessionCount": len(hall.sessions)}
        stores["extensionUI"] = {"pendingCount": hall.sessions.pending_count}
        return ports.HandlerResult(
            data={
                "sessionCount": len(hall.sessions),
                "connectionCount": hall.connections(),
                "totalCommandsExecuted": own.totalCommandsExecuted,
                "commandsRejected": own.commandsRejected,
                "rateLimitUsage": own.rateLimitUsage,
                "stores": stores,
                "circuitBreakers": [self._convert_breaker(state) for state in hall.service.host_services.list_breakers()],
                "bashCircuitBreaker": hall.bash_breaker.collect_metrics(),
            }
        )

    def health_check(self, request: inbound.PiRequest, client: Client) -> ports.HandlerResult:
        open_providers = [
            state.provider for state in self._context.service.host_services.list_breakers() if state.state == "open"
        ]
        bash_open = self._context.bash_breaker.is_open
        issues = [f"Circuit breaker open: {provider}" for provider in open_providers]
        if bash_open:
            issues.append("Bash circuit breaker open")
        return ports.HandlerResult(
            data={
                "healthy": not issues,
                "issues": issues,
                "hasOpenCircuit": bool(open_providers),
                "hasOpenBashCircuit": bash_open,
            }
        )

    def _convert_breaker(self, state: BreakerState) -> dict[str, object]:
        return {
            "providerName": state.provider,
            "state": state.state,
            "failureCount": state.failures,
            "lastFailureTime": state.last_failure_ms,
            "totalCalls": state.calls,
            "totalRejected": state.rejected + self._context.prompts_refused[state.provider],
            "totalSuccesses": state.successes,
            "totalFailures": state.failed,
            "avgLatencyMs": state.average_ms,
        }
