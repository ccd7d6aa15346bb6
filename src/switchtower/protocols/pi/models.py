"""The models of the catalogue in pi's shape. Looked up when somebody asks; what was found is kept for the sessions' infos."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from switchtower.core import workshop
from switchtower.protocols.pi.view import shapes
from switchtower.protocols.pi.view.streaming import Cast
from switchtower.protocols.pi.view.transcript import NOBODY

_APIS = {"anthropic": "anthropic-messages", "google": "google-generative-ai", "demo": "demo"}
_DEFAULT_API = "openai-completions"
_DEFAULT_WINDOW = 128_000
_MOST_OUTPUT = 16_384
"""No catalogue of ours knows how much a model may write; clients want a figure."""


class Models:
    def __init__(self, workshop_: workshop.Workshop) -> None:
        self._workshop = workshop_
        self._offers: dict[str, workshop.ModelOffer] = {}

    async def refresh(self) -> list[shapes.Model]:
        """The usable ones, as they are now."""
        offers: Sequence[workshop.ModelOffer] = await self._workshop.models()
        self._offers = {offer.name: offer for offer in offers}
        return [self._model(offer, offer.model or offer.name) for offer in offers if offer.usable]

    def of(self, provider: str, model: str | None) -> shapes.Model:
        """Also for one that the catalogue does not list: a session names what it was given."""
        offer = self._offers.get(provider)
        if offer is None:
            offer = workshop.ModelOffer(provider, provider, model, usable=True, reason="")
        return self._model(offer, model or offer.model or provider)

    def _model(self, offer: workshop.ModelOffer, model: str) -> shapes.Model:
        return shapes.Model(
            id=model,
            name=model,
            api=api_of(offer.provider),
            provider=offer.name,
            baseUrl="",
            reasoning=True,
            input=("text", "image"),
            cost=shapes.ModelCost(offer.price_in or 0.0, offer.price_out or 0.0),
            contextWindow=offer.context_window or _DEFAULT_WINDOW,
            maxTokens=_MOST_OUTPUT,
        )


def cast_of(model: shapes.Model | UnsetType) -> Cast:
    """Who speaks in a session with this model."""
    return NOBODY if model is UNSET else Cast(provider=model.provider, model=model.id, api=model.api)


def api_of(kind: str) -> str:
    return _APIS.get(kind, _DEFAULT_API)
