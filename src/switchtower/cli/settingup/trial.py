"""One small call of the chosen model, through the daemon's own catalog: whether the key is good and the model is there."""

import asyncio
import time
from collections.abc import Mapping

from msgspec import Struct

from switchtower import config
from switchtower.core import engine, errors
from switchtower.models import catalog, connect, port, providers
from switchtower.models.key_store import KeyStore

PATIENCE = 30.0
_ASKED = "Answer with the word OK and nothing else."
_SAID_IN_SHORT = 60


class Trial(Struct, frozen=True):
    """`problem` is one sentence with a remedy, and never holds a key; None when it went well."""

    problem: str | None = None
    said: str = ""
    seconds: float = 0.0
    was_made: bool = True

    @property
    def is_good(self) -> bool:
        return self.problem is None


async def call(
    settings: config.Settings,
    models: Mapping[str, object],
    provider: str,
    model: str | None,
    environ: Mapping[str, str],
    *,
    within: float = PATIENCE,
) -> Trial:
    """`models` are the file's tables as they will be. The demo model needs no try."""
    if provider == providers.DEMO:
        return Trial(was_made=False)
    patience = connect.Patience(connect=min(10.0, within), silence=within)
    known = catalog.Catalog(models, environ, patience=patience, stored_keys=KeyStore(settings.folders.config))
    began = time.monotonic()
    try:
        async with asyncio.timeout(within):
            opened = await known.open(provider, model)
            said = await _said(opened)
    except TimeoutError:
        return Trial(f"`{provider}` did not answer within {within:g} s; hint: see whether it can be reached from here")
    except errors.CoreError as problem:
        return Trial(problem.message)
    except port.ModelTrouble as trouble:
        return Trial(trouble.message)
    finally:
        await known.close()
    return Trial(said=" ".join(said.split())[:_SAID_IN_SHORT], seconds=time.monotonic() - began)


async def _said(opened: port.Model) -> str:
    request = port.Request([engine.Message("user", _ASKED)])
    pieces = []
    async for part in opened.stream(request):
        if isinstance(part, port.TextDelta):
            pieces.append(part.text)
    return "".join(pieces)
