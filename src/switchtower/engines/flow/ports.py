"""The ports of the flow engine: runtimes that run steps, and agents that do them.

Caches the capabilities that runtimes report, one file per engine, for people to read (rep 9). No decision depends on the
cache. Only this module writes there. An engine's name becomes a file's name, so it must not lead anywhere else.

It also rewrites flows for runtimes that lack `finish` and nothing else. Where `finish` is only the end of the success path, a
flow without it ends the same way, and the runtime can run all of it at once. A `finish` that swallows a failure or is chosen by a
case cannot be left out; `delegation` runs such flows step by step."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from switchtower.core import events

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LARGEST = 1024 * 1024


class InvalidEngineName(Exception):
    """The name cannot be an engine's."""

    def __init__(self, engine: str) -> None:
        super().__init__(f"`{engine[:100]}` cannot be an engine's name; hint: use letters, digits, `_`, `-` and `.`")


def cache_folder() -> Path:
    try:
        home = Path.home()
    except RuntimeError:  # no `HOME`, and the system does not know the user: nothing can be stored
        home = Path(os.devnull)
    return home / ".trace_mind" / "runtime_capabilities"


def cache_path(engine: str) -> Path:
    """Raises `InvalidEngineName`."""
    if not _NAME.fullmatch(engine):
        raise InvalidEngineName(engine)
    return cache_folder() / f"{engine}.json"


def write_capabilities(engine: str, capabilities: dict[str, Any]) -> Path | None:
    """Returns the path of the file; None when it could not be written, which must not fail the run. Raises
    `InvalidEngineName`.
    """
    place = cache_path(engine)
    content = msgspec.json.format(msgspec.json.encode(capabilities), indent=2) + b"\n"
    if len(content) > _LARGEST:
        return None
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = place.parent / f".{os.urandom(8).hex()}.unfinished"
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            unfinished.replace(place)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
    except OSError:
        return None
    return place


def read_capabilities(engine: str) -> dict[str, Any] | None:
    """Returns the last report; None when there is none, or none that can be read. Raises `InvalidEngineName`."""
    place = cache_path(engine)
    try:
        with place.open("rb") as file:
            return msgspec.json.decode(file.read(_LARGEST), type=dict[str, Any])
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


def clear_capabilities(engine: str) -> bool:
    """Returns whether there was a file. Raises `InvalidEngineName`, and `OSError` when the file cannot be removed."""
    try:
        cache_path(engine).unlink()
    except FileNotFoundError:
        return False
    return True


def list_engines() -> list[str]:
    """Lists the engines that have a cached report."""
    with suppress(OSError):
        return sorted(file.stem for file in cache_folder().glob("*.json") if _NAME.fullmatch(file.stem))
    return []


FINISH = "finish"


def remove_kinds(ir: dict[str, Any], lacking: Collection[str]) -> dict[str, Any] | None:
    """Returns the same flow without nodes of these kinds, or None when it would behave differently. Expects a valid IR."""
    if set(lacking) != {FINISH}:
        return None
    graph = ir["graph"]
    kind_of = {node["id"]: node["type"] for node in graph["nodes"]}
    dropped = {node["id"] for node in graph["nodes"] if node["type"] == FINISH}
    has_meaning = any(node.get("with") for node in graph["nodes"] if node["id"] in dropped)
    if has_meaning or len(dropped) == len(kind_of):
        return None
    for edge in graph["edges"]:
        if edge["from"] in dropped:
            return None
        if edge["to"] in dropped and (edge.get("on", "success") != "success" or kind_of[edge["from"]] == "switch"):
            return None
    nodes = [node for node in graph["nodes"] if node["id"] not in dropped]
    edges = [edge for edge in graph["edges"] if edge["to"] not in dropped]
    return {**ir, "graph": {**graph, "nodes": nodes, "edges": edges}}


FlowRuntimeEvent = Mapping[str, Any]
"""An event of REP: `{type, timestamp, …}`."""
OnEvent = Callable[[FlowRuntimeEvent], Awaitable[None]]


class FlowOrder(Struct, frozen=True, kw_only=True):
    """A flow to be run, and where."""

    flow: events.Flow
    run_id: str
    workspace: str
    sandbox: str


class FlowResult(Struct, frozen=True):
    """The result of a flow, in REP's terms."""

    status: str
    summary: dict[str, Any]
    exit_code: int


class FlowRuntimes(Protocol):
    """Runs flows on the runtime that the flow has chosen. When a method returns, no process of a runtime is left."""

    async def run(self, order: FlowOrder, cancel: asyncio.Event, on_event: OnEvent) -> FlowResult:
        """Runs the whole flow on one runtime."""
        ...

    async def find_missing_kinds(self, order: FlowOrder, kinds: Sequence[str]) -> dict[str, Any] | None:
        """Returns the error that prevents the runtime's use, before anything is run; None when it has all these kinds."""
        ...

    async def run_step(self, order: FlowOrder, document: dict[str, Any], kind: str) -> Mapping[str, Any]:
        """Runs a flow of one node on a separate runtime and returns `{status, summary, events}`."""
        ...

    def get_exit_code(self, status: str, summary: Mapping[str, Any]) -> int: ...


class AgentOrder(Struct, frozen=True, kw_only=True):
    """A step that a session is to do. It is idempotent: requested twice under one id, it is done once."""

    session_id: str
    prompt: str
    workspace: str
    sandbox: str
    title: str
    by: events.Actor
    metadata: dict[str, Any]
    provider: str = "auto"
    model: str | None = None
    preset: str | None = None
    policy: str | None = None
    thinking: str | None = None
    acceptance: tuple[events.Criterion, ...] = ()
    budget: events.Budget | None = None
    worktree: bool = False


class AgentResult(Struct, frozen=True, kw_only=True):
    run_id: str
    outcome: events.Outcome
    summary: str
    text: str
    """The last message of the agent."""
    acceptance: tuple[events.CriterionResult, ...] = ()
    tokens: int = 0
    cost: float = 0.0


class AgentRefused(Exception):
    """The session could not be started; the text gives the reason and the remedy."""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class FlowAgents(Protocol):
    async def run_agent(self, order: AgentOrder) -> AgentResult:
        """Waits for the end of the session, however long that takes. Raises `AgentRefused`."""
        ...

    async def stop_agent(self, session_id: str) -> None:
        """Stops the session; its work is no longer needed."""
        ...
