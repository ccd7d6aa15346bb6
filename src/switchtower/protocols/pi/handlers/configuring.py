"""How a session works from its next run on: its model, its thinking, its name, what it does by itself."""

from switchtower.core import commands, errors
from switchtower.protocols.pi import messages, strings
from switchtower.protocols.pi.handlers.hall import Hall, Visitor
from switchtower.protocols.pi.order import inbound, ports
from switchtower.protocols.pi.roster import Standing
from switchtower.protocols.pi.view import shapes, stats

_LEVELS = messages.LEVELS


class ConfiguringHandlers:
    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    async def set_model(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        body = request.body
        assert isinstance(body, messages.SetModel)
        return ports.Handled(data={"model": await self._use(request, visitor, standing, body.provider, body.modelId)})

    async def cycle_model(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.CycleModel)
        models = await self._hall.models.refresh()
        if len(models) < 2:
            return ports.Handled(data=None)
        now = self._hall.models.of(standing.provider, standing.model)
        place = next((index for index, model in enumerate(models) if (model.provider, model.id) == (now.provider, now.id)), -1)
        step = -1 if request.body.direction == "backward" else 1
        chosen = models[(place + step) % len(models)]
        model = await self._use(request, visitor, standing, chosen.provider, chosen.id)
        level = standing.thinking or stats.DEFAULT_THINKING
        return ports.Handled(data={"model": model, "thinkingLevel": level, "isScoped": False})

    async def _use(
        self, request: inbound.Request, visitor: Visitor, standing: Standing, provider: str, model: str
    ) -> shapes.Model:
        command = self._command(request, visitor, standing, provider=provider, model=model)
        await self._hall.tower.workshop.look_up_model(command)
        try:
            self._hall.tower.workshop.check_configuration(command)
        except errors.CoreError:
            raise ports.Refused(strings.model_not_found(provider, model)) from None
        await self._hall.ask(command)
        return self._hall.models.of(provider, model)

    async def set_thinking_level(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.SetThinkingLevel)
        await self._think(request, visitor, standing, request.body.level)
        return ports.Handled()

    async def cycle_thinking_level(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        now = standing.thinking or stats.DEFAULT_THINKING
        following = _LEVELS[(_LEVELS.index(now) + 1) % len(_LEVELS)] if now in _LEVELS else _LEVELS[0]
        await self._think(request, visitor, standing, following)
        return ports.Handled(data={"level": following})

    async def _think(self, request: inbound.Request, visitor: Visitor, standing: Standing, level: str) -> None:
        level = "off" if level == "none" else level
        await self._hall.ask(self._command(request, visitor, standing, thinking=level))

    async def set_session_name(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.SetSessionName)
        await self._hall.ask(self._command(request, visitor, standing, title=request.body.name))
        return ports.Handled()

    async def set_auto_compaction(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.SetAutoCompaction)
        await self._hall.ask(self._command(request, visitor, standing, auto_compact=request.body.enabled))
        return ports.Handled()

    async def set_auto_retry(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.SetAutoRetry)
        await self._hall.ask(self._command(request, visitor, standing, auto_retry=request.body.enabled))
        return ports.Handled()

    def _command(
        self,
        request: inbound.Request,
        visitor: Visitor,
        standing: Standing,
        *,
        provider: str | None = None,
        model: str | None = None,
        thinking: str | None = None,
        title: str | None = None,
        auto_compact: bool | None = None,
        auto_retry: bool | None = None,
    ) -> commands.ConfigureSession:
        """Without a receipt of its beginning: done twice, it comes to the same."""
        return commands.ConfigureSession(
            session_id=standing.id,
            actor=visitor.actor,
            provider=provider,
            model=model,
            thinking=thinking,
            title=title,
            auto_compact=auto_compact,
            auto_retry=auto_retry,
        )
