"""The models of the catalogue in pi's shape. Looked up when somebody asks; what was found is kept for the sessions' infos."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from switchtower.core import workshop
from switchtower.protocols.pi.view import shapes
from switchtower.protocols.pi.view.streaming import AssistantInfo
from switchtower.protocols.pi.view.transcript import UNKNOWN_ASSISTANT

_APIS = {"anthropic": "anthropic-messages", "google": "google-generative-ai", "demo": "demo"}
_DEFAULT_API = "openai-completions"
_DEFAULT_WINDOW = 128_000
_MAX_OUTPUT = 16_384
"""No catalogue of ours knows how much a model may write; clients want a figure."""


class PiModelCatalog:
    def __init__(self, workshop_: workshop.HostServices) -> None:
        self._host_services = workshop_
        self._infos: dict[str, workshop.ModelInfo] = {}

    async def refresh(self) -> list[shapes.Model]:
        """The usable ones, as they are now."""
        offers: Sequence[workshop.ModelInfo] = await self._host_services.list_models()
        self._infos = {offer.name: offer for offer in offers}
        return [self._make_model(offer, offer.model or offer.name) for offer in offers if offer.usable]

    def get_model(self, provider: str, model: str | None) -> shapes.Model:
        """Also for one that the catalogue does not list: a session names what it was given."""
        offer = self._infos.get(provider)
        if offer is None:
            offer = workshop.ModelInfo(provider, provider, model, usable=True, reason="")
        return self._make_model(offer, model or offer.model or provider)

    def _make_model(self, offer: workshop.ModelInfo, model: str) -> shapes.Model:
        return shapes.Model(
            id=model,
            name=model,
            api=get_api_name(offer.provider),
            provider=offer.name,
            baseUrl="",
            reasoning=True,
            input=("text", "image"),
            cost=shapes.ModelCost(offer.price_in or 0.0, offer.price_out or 0.0),
            contextWindow=offer.context_window or _DEFAULT_WINDOW,
            maxTokens=_MAX_OUTPUT,
        )


def make_assistant_info(model: shapes.Model | UnsetType) -> AssistantInfo:
    """Who speaks in a session with this model."""
    return UNKNOWN_ASSISTANT if model is UNSET else AssistantInfo(provider=model.provider, model=model.id, api=model.api)


def get_api_name(kind: str) -> str:
    return _APIS.get(kind, _DEFAULT_API)
