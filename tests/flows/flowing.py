"""Flows for a real daemon, over push: how they are started, watched, decided in and asked about."""

import itertools
import sys
from pathlib import Path
from typing import Any

from tests.contract_proc.driving import RUNTIMES
from tests.engines.flow.runtime.stage import make_document as make_document
from tests.engines.flow.runtime.stage import make_edge as make_edge
from tests.engines.flow.runtime.stage import make_node as make_node

from switchtower.testing.push_client import PushClient, ReceivedEvent, RequestRefused


def make_chain(*nodes: dict[str, Any], **inputs: str) -> dict[str, Any]:
    """One after the other."""
    edges = [make_edge(first["id"], then["id"]) for first, then in itertools.pairwise(nodes)]
    return make_document(list(nodes), edges, **inputs)


def make_shell_step(name: str, command: str, **more: Any) -> dict[str, Any]:
    return make_node(name, "shell", command=command, **more)


def make_counting_step(name: str, **more: Any) -> dict[str, Any]:
    """A step that leaves a line in `NAME.txt` each time it runs."""
    return make_shell_step(name, f"echo ran >> {name}.txt", **more)


def get_foreign_runtime(name: str) -> dict[str, Any]:
    """What starts one of the runtimes of the contract tests."""
    return {"runtime": "proc", "argv": [sys.executable, str(RUNTIMES / f"{name}.py")]}


async def start(client: PushClient, workspace: Path, flow: dict[str, Any], **wish: Any) -> str:
    """The session of a flow that was just started."""
    asked = {"document": flow, "allowShell": True, **wish}
    started = await client.start_session(workspace, provider="flow", engine="flow", flow=asked)
    return started.session_id


async def wait_for_end(client: PushClient, session_id: str) -> list[ReceivedEvent]:
    """The session's events, up to the end of its run."""
    taken: list[ReceivedEvent] = []
    while not taken or taken[-1].type != "run_complete":
        event = await client.next_event()
        if event.session_id == session_id:
            taken.append(event)
    return taken


async def run(
    client: PushClient, workspace: Path, flow: dict[str, Any], **wish: Any
) -> tuple[list[ReceivedEvent], dict[str, Any]]:
    """All events, and the flow's report."""
    session_id = await start(client, workspace, flow, **wish)
    return await wait_for_end(client, session_id), await report(client, session_id)


async def report(client: PushClient, session_id: str) -> dict[str, Any]:
    return await client.request_payload("get_flow", {"sessionId": session_id}, session_id=session_id)


async def wait_for_question(client: PushClient, session_id: str) -> ReceivedEvent:
    """The next question of this session."""
    while True:
        event = await client.next_event()
        if event.session_id == session_id and event.type == "approval_required":
            return event


async def wait_for_step(client: PushClient, session_id: str, step: str, state: str = "started") -> ReceivedEvent:
    while True:
        event = await client.next_event()
        if event.session_id != session_id:
            continue
        if state == "started" and event.type == "tool_call" and event.payload["args"].get("step") == step:
            return event
        if state == "ended" and event.type == "tool_result" and event.payload["text"].startswith(f"{step}: "):
            return event


async def wait_for_agent_question(client: PushClient, session_id: str, step: str = "do") -> ReceivedEvent:
    """The question of the agent that does this step."""
    call = await wait_for_step(client, session_id, step)
    inside = str(call.payload["args"]["session_id"])
    while True:
        try:
            await client.attach(inside)
            break
        except RequestRefused:
            await client.ping()  # its session is about to begin
    return await wait_for_question(client, inside)


def list_steps(told: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(event["step_id"], event["state"], event["attempt"]) for event in told["events"] if event["type"] == "step"]


def count_runs(workspace: Path, name: str) -> int:
    """How often a counting step has run."""
    path = workspace / f"{name}.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0
