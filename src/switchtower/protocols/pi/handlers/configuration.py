"""Handlers that configure a session from its next run on: its model, thinking level and name, automatic compaction and retry."""

from switchtower.core import commands, errors
from switchtower.protocols.pi import errors as pi_errors
from switchtower.protocols.pi import event_messages, inbound, messages
from switchtower.protocols.pi.dispatch import ports
from switchtower.protocols.pi.errors import PiCommandError
from switchtower.protocols.pi.handlers.context import Client, HandlerContext
from switchtower.protocols.pi.sessions import info
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
