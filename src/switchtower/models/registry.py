"""From a provider's name to a model. Opening one does no I/O; an unknown provider is refused with a hint."""

from switchtower.core import errors
from switchtower.models import demo, port

PROVIDERS = ("demo",)


def open_model(provider: str, model: str | None = None, *, demo_delay: float = demo.DELAY) -> port.Model:
    """The provider's model of this name. The demo model has no others beside it, so it takes any name."""
    if provider == "demo":
        return demo.DemoModel(demo_delay)
    known = ", ".join(f"`{name}`" for name in PROVIDERS)
    raise errors.ProviderNotConfigured(f"`{provider}`", hint=f"use one of {known}")
