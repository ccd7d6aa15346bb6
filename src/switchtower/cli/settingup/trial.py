"""One small call of the chosen model, through the daemon's own catalog: whether the key is good and the model is there."""

import asyncio
import time
from collections.abc import Mapping

from msgspec import Struct

from switchtower import config
from switchtower.core import engine, errors
from switchtower.models import catalog, connect, port, providers
from switchtower.models.key_store import KeyStore

TRIAL_TIMEOUT = 30.0
_TRIAL_PROMPT = "Answer with the word OK and nothing else."
_MAX_ANSWER_CHARS = 60


class ModelTrial(Struct, frozen=True):
    """`problem` is one sentence with a remedy, and never holds a key; None when it went well."""

    problem: str | None = None
    said: str = ""
    seconds: float = 0.0
    was_made: bool = True

    @property
    def is_good(self) -> bool:
        return self.problem is None


async def try_model(
    settings: config.Settings,
    models: Mapping[str, object],
    provider: str,
    model: str | None,
    environ: Mapping[str, str],
    *,
    timeout: float = TRIAL_TIMEOUT,
) -> ModelTrial:
    """`models` are the file's tables as they will be. The demo model needs no try."""
    if provider == providers.DEMO:
        return ModelTrial(was_made=False)
    patience = connect.ConnectionTimeouts(connect=min(10.0, timeout), silence=timeout)
    known = catalog.Catalog(models, environ, timeouts=patience, stored_keys=KeyStore(settings.folders.config))
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout):
            opened = await known.open_model(provider, model)
            said = await _read_answer(opened)
    except TimeoutError:
        return ModelTrial(f"`{provider}` did not answer within {timeout:g} s; hint: see whether it can be reached from here")
    except errors.CoreError as problem:
        return ModelTrial(problem.message)
    except port.ModelError as trouble:
        return ModelTrial(trouble.message)
    finally:
        await known.close()
    return ModelTrial(said=" ".join(said.split())[:_MAX_ANSWER_CHARS], seconds=time.monotonic() - began)


async def _read_answer(opened: port.Model) -> str:
    request = port.CompletionRequest([engine.Message("user", _TRIAL_PROMPT)])
    pieces = []
    async for part in opened.stream(request):
        if isinstance(part, port.TextPart):
            pieces.append(part.text)
    return "".join(pieces)
