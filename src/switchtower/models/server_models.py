"""The models that a server lists itself, cached for a short time. A name that is not in the list is refused before it is used.

A server is queried on a thread, with a short timeout, and without redirects, because the request has its key. A server that
cannot be queried has no list: its names are accepted unchecked.
"""

import asyncio
import contextlib
import difflib
import http.client
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from switchtower.models import entries
from switchtower.models.providers import Dialect

LIST_TIMEOUT = 3.0
"""The seconds for a server to answer."""
FRESH = 300.0
"""The seconds for which a list is valid."""
FRESH_FAILURE = 15.0
"""The seconds after which a server without a list is queried again."""
FRESH_REFUSAL = 2.0
"""The seconds for which a list is fresh enough to refuse a name."""
MOST_MODELS = 2_000
_MOST_BYTES = 4 * 1_048_576
_MOST_NEAREST = 5
_LEAST_LIKENESS = 0.4
_ANTHROPIC_VERSION = "2023-06-01"
_DATE = re.compile(r"\d{4}(?:-?\d{2}){0,2}")
_EMBEDS = ("embed", "bert", "rerank")
"""Parts of the names of models that generate no text."""


class _CachedModels(Struct, frozen=True):
    names: tuple[str, ...] | None
    asked_at: float

    def is_fresh(self, now: float, model: str | None) -> bool:
        """A list that lacks the wanted model is valid for a moment only: the model may have been installed since."""
        if self.names is None:
            return now < self.asked_at + FRESH_FAILURE
        lacks = model is not None and not has_model(self.names, model)
        return now < self.asked_at + (FRESH_REFUSAL if lacks else FRESH)


class ServerModels:
    def __init__(self, clock: Callable[[], float], timeout_s: float = LIST_TIMEOUT) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._cached: dict[str, _CachedModels] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def is_fresh(self, entry: entries.ProviderEntry, model: str | None = None) -> bool:
        kept = self._cached.get(entry.name)
        return kept is not None and kept.is_fresh(self._clock(), model)

    def get_names(self, entry: entries.ProviderEntry) -> tuple[str, ...] | None:
        """Returns the names that the server listed last; None when it has no list, or has not been queried."""
        kept = self._cached.get(entry.name)
        return kept.names if kept is not None else None

    def get_first(self, entry: entries.ProviderEntry) -> str | None:
        """Returns the first model of the list that can hold a conversation."""
        return next((name for name in self.get_names(entry) or () if not any(part in name.lower() for part in _EMBEDS)), None)

    async def refresh(self, entry: entries.ProviderEntry, key: str | None) -> None:
        """Queries the server. Concurrent callers share one request."""
        asking = self._asking.get(entry.name)
        if asking is None:
            asking = self._asking[entry.name] = asyncio.create_task(self._fetch_names(entry, key), name=f"models of {entry.name}")
            asking.add_done_callback(lambda _: self._asking.pop(entry.name, None))
        await asyncio.wait({asking})

    def forget(self, name: str) -> None:
        """Drops the list of an entry that has changed, so that its server is queried again."""
        self._cached.pop(name, None)

    async def close(self) -> None:
        for asking in (waiting := list(self._asking.values())):
            asking.cancel()
        if waiting:
            await asyncio.wait(waiting)

    async def _fetch_names(self, entry: entries.ProviderEntry, key: str | None) -> None:
        names = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                names = await asyncio.to_thread(fetch_list, *make_request(entry, key), self._timeout_s)
        self._cached[entry.name] = _CachedModels(names or None, self._clock())


def make_request(entry: entries.ProviderEntry, key: str | None) -> tuple[str, dict[str, str]]:
    """Returns the address of an entry's list, and the headers for the request."""
    assert entry.base_url is not None, "an entry that can be used knows where"
    headers = dict(entry.headers)
    match entry.provider.dialect:
        case Dialect.ANTHROPIC:
            if key:
                headers["x-api-key"] = key
            return f"{entry.base_url}/v1/models?limit=1000", {**headers, "anthropic-version": _ANTHROPIC_VERSION}
        case Dialect.GOOGLE:
            if key:
                headers["x-goog-api-key"] = key
            return f"{entry.base_url}/v1beta/models?pageSize=1000", headers
        case Dialect.OPENAI:
            if key:
                headers["authorization"] = f"Bearer {key}"
            if entry.provider.kind == "ollama":
                return f"{entry.base_url.removesuffix('/v1')}/api/tags", headers
            return f"{entry.base_url}/models", headers


def fetch_list(url: str, headers: Mapping[str, str], timeout_s: float) -> tuple[str, ...] | None:
    """Returns the names of a list; None when the server has none, and empty when the server refuses access to it. Blocks."""
    try:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(parts.netloc, timeout=timeout_s)
    except (ValueError, http.client.HTTPException):
        return None
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "application/json", **headers})
        response = connection.getresponse()
        if response.status != 200:
            return () if response.status in (401, 403) else None
        return _parse_names(msgspec.json.decode(response.read(_MOST_BYTES)))
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, RecursionError, ValueError):
        return None
    finally:
        with contextlib.suppress(OSError):
            connection.close()


def _parse_names(answer: Any) -> tuple[str, ...] | None:
    """Parses OpenAI's and Anthropic's `data[].id`, Google's and Ollama's `models[].name`."""
    if not isinstance(answer, dict) or not {"data", "models"} & answer.keys():
        return None
    listed = answer.get("data") or answer.get("models")
    if not isinstance(listed, list):
        return ()
    names = [model.get("id") or model.get("name") for model in listed[:MOST_MODELS] if isinstance(model, dict)]
    return tuple(
        name.removeprefix("models/")
        for name in names
        if isinstance(name, str) and name.isprintable() and 0 < len(name) <= entries.LONGEST_NAME
    )


def has_model(names: Sequence[str], wanted: str) -> bool:
    """Returns whether a server that lists these names has the model. Aliases without a date, a tag or a variant count."""
    wanted = wanted.removeprefix("models/").lower()
    base = wanted.partition(":")[0].removesuffix("-latest")
    for name in (name.lower() for name in names):
        if name in (wanted, f"{wanted}:latest") or (":" in wanted and name == base):
            return True
        if ":" not in wanted and name.startswith((f"{base}-", f"{base}@")) and _DATE.fullmatch(name, len(base) + 1):
            return True
    return False


def find_nearest(names: Sequence[str], wanted: str) -> list[str]:
    """Returns the names of the list that are most similar to this one; the first ones when none is."""
    by_lower = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(wanted.lower()[: entries.LONGEST_NAME], by_lower, _MOST_NEAREST, _LEAST_LIKENESS)
    return [by_lower[name] for name in close] or list(names[:_MOST_NEAREST])
