"""Flows for a real daemon, over push: how they are started, watched, decided in and asked about."""

import itertools
import sys
from pathlib import Path
from typing import Any

from tests.contract_proc.driving import RUNTIMES
from tests.engines.flow.runtime.stage import document as document
from tests.engines.flow.runtime.stage import edge as edge
from tests.engines.flow.runtime.stage import node as node

from switchtower.testing.push_client import Event, PushClient, Refused


def chain(*nodes: dict[str, Any], **inputs: str) -> dict[str, Any]:
    """One after the other."""
    edges = [edge(first["id"], then["id"]) for first, then in itertools.pairwise(nodes)]
    return document(list(nodes), edges, **inputs)


def shell(name: str, command: str, **more: Any) -> dict[str, Any]:
    return node(name, "shell", command=command, **more)


def counting(name: str, **more: Any) -> dict[str, Any]:
    """A step that leaves a line in `NAME.txt` each time it runs."""
    return shell(name, f"echo ran >> {name}.txt", **more)


def foreign(name: str) -> dict[str, Any]:
    """What starts one of the runtimes of the contract tests."""
    return {"runtime": "proc", "argv": [sys.executable, str(RUNTIMES / f"{name}.py")]}


async def start(client: PushClient, workspace: Path, flow: dict[str, Any], **wish: Any) -> str:
    """The session of a flow that was just started."""
    asked = {"document": flow, "allowShell": True, **wish}
    started = await client.start_session(workspace, provider="flow", engine="flow", flow=asked)
    return started.session_id


async def finished(client: PushClient, session_id: str) -> list[Event]:
    """The session's events, up to the end of its run."""
    taken: list[Event] = []
    while not taken or taken[-1].type != "run_complete":
        event = await client.event()
        if event.session_id == session_id:
            taken.append(event)
    return taken


async def run(client: PushClient, workspace: Path, flow: dict[str, Any], **wish: Any) -> tuple[list[Event], dict[str, Any]]:
    """All events, and the flow's report."""
    session_id = await start(client, workspace, flow, **wish)
    return await finished(client, session_id), await report(client, session_id)


async def report(client: PushClient, session_id: str) -> dict[str, Any]:
    return await client.ask("get_flow", {"sessionId": session_id}, session_id=session_id)


async def asked(client: PushClient, session_id: str) -> Event:
    """The next question of this session."""
    while True:
        event = await client.event()
        if event.session_id == session_id and event.type == "approval_required":
            return event


async def until_step(client: PushClient, session_id: str, step: str, state: str = "started") -> Event:
    while True:
        event = await client.event()
        if event.session_id != session_id:
            continue
        if state == "started" and event.type == "tool_call" and event.payload["args"].get("step") == step:
            return event
        if state == "ended" and event.type == "tool_result" and event.payload["text"].startswith(f"{step}: "):
            return event


async def asked_inside(client: PushClient, session_id: str, step: str = "do") -> Event:
    """The question of the agent that does this step."""
    call = await until_step(client, session_id, step)
    inside = str(call.payload["args"]["session_id"])
    while True:
        try:
            await client.attach(inside)
            break
        except Refused:
            await client.ping()  # its session is about to begin
    return await asked(client, inside)


def steps(told: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(event["step_id"], event["state"], event["attempt"]) for event in told["events"] if event["type"] == "step"]


def ran(workspace: Path, name: str) -> int:
    """How often a counting step has run."""
    path = workspace / f"{name}.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0
