"""A session that a process of a run starts is bound to that run: its sandbox, its folder, its policy, its budget, its end. The
process decides nothing, also not in the session that it has started."""

import json
import shlex
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect, StartDaemon
from tests.flows.flowing import make_document, make_node

from switchtower.testing.push_client import PushClient, StartedSession, make_start_payload
from switchtower.tools.sandboxes import sandbox

WHY_NOT = sandbox.probe_sandbox("bubblewrap")

INSIDE = textwrap.dedent(
    """
    import asyncio, json, sys
    from switchtower.testing.push_client import PushClient

    socket, steps = sys.argv[1], json.load(open(sys.argv[2]))

    async def main():
        told = []
        async with await PushClient.connect_socket(socket) as push:
            child = None
            for type_, payload in steps:
                if type_ == "until":
                    told.append((await push.read_until(payload))[-1].payload)
                    continue
                payload = {name: child if value == "CHILD" else value for name, value in payload.items()}
                session_id = payload.get("sessionId")
                answer = await push.request(type_, payload, session_id=session_id)
                told.append({"code": answer.code, "error": answer.error, "payload": answer.payload})
                if type_ == "start_session" and answer.ok:
                    child = answer.payload["sessionId"]
        json.dump(told, open("told.json", "w"))

    asyncio.run(main())
    """
)


class ParentSession:
    """A session whose one approved command talks to the daemon."""

    def __init__(self, daemon: ManagedDaemon, push: PushClient, workspace: Path) -> None:
        self.daemon = daemon
        self.push = push
        self.workspace = workspace

    async def open(self, **fields: object) -> StartedSession:
        (self.workspace / "inside.py").write_text(INSIDE)
        return await self.push.start_session(self.workspace, **fields)

    async def begin(self, started: StartedSession, *steps: tuple[str, Any], then: str = "true") -> None:
        """The command is approved and runs."""
        (self.workspace / "steps.json").write_text(json.dumps(steps))
        command = f"{shlex.quote(sys.executable)} inside.py {shlex.quote(str(self.daemon.socket))} steps.json; {then}"
        await self.push.send(started.session_id, f"run: {command}")
        asked = (await self.push.read_until("approval_required"))[-1]
        await self.push.decide(asked)

    async def run(self, started: StartedSession, *steps: tuple[str, Any]) -> list[dict[str, Any]]:
        await self.begin(started, *steps)
        await self.push.read_until("run_complete")
        told: list[dict[str, Any]] = json.loads((self.workspace / "told.json").read_text())
        return told

    async def get_info(self, session_id: str) -> dict[str, Any]:
        return await self.push.request_payload("get_session", {"sessionId": session_id}, session_id=session_id)

    async def get_state(self, session_id: str) -> str:
        return str((await self.get_info(session_id))["state"])

    def start(self, folder: Path | None = None, **fields: object) -> tuple[str, dict[str, object]]:
        return "start_session", make_start_payload(folder or self.workspace, **{"sandboxProvider": "auto", **fields})


@pytest.fixture
async def parent_session(push_daemon: ManagedDaemon, connect: Connect, workspace: Path) -> AsyncIterator[ParentSession]:
    return ParentSession(push_daemon, await connect(push_daemon), workspace)


def make_message(text: str) -> tuple[str, dict[str, object]]:
    return "send_user_message", {"sessionId": "CHILD", "clientMessageId": "msg_1", "text": text}


async def test_a_child_ends_with_the_run_that_started_it(parent_session: ParentSession) -> None:
    """The child waits for a decision when the command ends, and with it the run."""
    started = await parent_session.open()
    outlived = parent_session.workspace / "outlived"

    told = await parent_session.run(
        started, parent_session.start(), make_message(f"run: touch {outlived}"), ("until", "approval_required")
    )

    child = told[0]["payload"]["sessionId"]
    await parent_session.push.attach(child)
    completed = (await parent_session.push.read_until("run_complete"))[-1].payload
    assert completed["outcome"] == "cancelled"
    assert not outlived.exists()
    about = await parent_session.get_info(child)
    assert (about["childOf"], about["policy"], about["activeRunId"]) == (started.session_id, "ask", None)


async def test_a_child_has_no_runs_after_its_parents_run(parent_session: ParentSession) -> None:
    started = await parent_session.open()
    told = await parent_session.run(started, parent_session.start())
    child = told[0]["payload"]["sessionId"]
    await parent_session.push.attach(child)

    events = await parent_session.push.run(child, "run: touch late")

    assert events[-1].payload["outcome"] == "failed"
    assert "the run that started this session has ended" in events[-1].payload["summary"]
    assert not (parent_session.workspace / "late").exists()


@pytest.mark.parametrize(
    "more",
    [
        {"policy": "yolo"},
        {"policy": "auto"},
        {"engine": "pty", "command": ["touch", "terminal"]},
        {"engine": "flow", "provider": "flow", "flow": {"document": make_document([make_node("a", "log", message="hi")])}},
        {"worktree": True},
    ],
    ids=lambda more: next(iter(more)) + "-" + str(next(iter(more.values()))),
)
async def test_a_run_starts_nothing_that_is_more_than_itself(parent_session: ParentSession, more: dict[str, object]) -> None:
    started = await parent_session.open()

    told = await parent_session.run(started, parent_session.start(**more))

    assert told[0]["code"] == "ATTACH_FORBIDDEN"
    assert not (parent_session.workspace / "terminal").exists()


async def test_yolo_is_not_inherited(parent_session: ParentSession) -> None:
    started = await parent_session.open(policy="yolo")
    (parent_session.workspace / "steps.json").write_text(
        json.dumps([parent_session.start(), parent_session.start(policy="yolo")])
    )
    await parent_session.push.run(
        started.session_id,
        f"run: {shlex.quote(sys.executable)} inside.py {shlex.quote(str(parent_session.daemon.socket))} steps.json",
    )

    told = json.loads((parent_session.workspace / "told.json").read_text())

    assert told[0]["code"] is None, told
    assert (await parent_session.get_info(told[0]["payload"]["sessionId"]))["policy"] == "auto"
    assert told[1]["code"] == "ATTACH_FORBIDDEN"


async def test_a_child_works_in_its_runs_folder(parent_session: ParentSession, tmp_path: Path) -> None:
    started = await parent_session.open()
    (parent_session.workspace / "below").mkdir()
    (parent_session.workspace / "link").symlink_to(tmp_path)

    told = await parent_session.run(
        started,
        parent_session.start(tmp_path),
        parent_session.start(parent_session.workspace / "link"),
        parent_session.start(parent_session.workspace / "below" / ".." / ".."),
        parent_session.start(parent_session.workspace / "below"),
    )

    assert [one["code"] for one in told] == ["ATTACH_FORBIDDEN", "ATTACH_FORBIDDEN", "ATTACH_FORBIDDEN", None]


@pytest.mark.skipif(WHY_NOT is not None, reason=f"no bubblewrap here: {WHY_NOT}")
async def test_a_child_has_at_least_the_configured_sandbox(start_daemon: StartDaemon, connect: Connect, workspace: Path) -> None:
    """The owner's own socket may name less than the setting; a process of a run on the same socket may not."""
    daemon = start_daemon(sandbox="bubblewrap")
    parent = ParentSession(daemon, await connect(daemon), workspace)
    started = await parent.open(sandboxProvider="local")

    told = await parent.run(started, parent.start(sandboxProvider="local"), parent.start())

    assert told[0]["code"] == "SANDBOX_UNAVAILABLE"
    assert (await parent.get_info(told[1]["payload"]["sessionId"]))["sandbox"] == "bubblewrap"


async def test_a_process_of_a_run_decides_nothing_in_its_child(parent_session: ParentSession) -> None:
    started = await parent_session.open()
    decided = parent_session.workspace / "decided"
    script = INSIDE.replace(
        "told.append((await push.read_until(payload))[-1].payload)",
        "asked = (await push.read_until(payload))[-1]; told.append(asked.payload); "
        'answer = await push.decide(asked); told.append({"code": answer.code})',
    )
    await parent_session.open()
    (parent_session.workspace / "inside.py").write_text(script)

    told = await parent_session.run(
        started,
        parent_session.start(),
        make_message(f"run: touch {decided}"),
        ("until", "approval_required"),
        ("configure_session", {"sessionId": "CHILD", "policy": "yolo"}),
        ("configure_session", {"sessionId": "CHILD", "title": "mine"}),
    )

    assert [one.get("code") for one in told[3:]] == ["ATTACH_FORBIDDEN", "ATTACH_FORBIDDEN", None]
    assert not decided.exists()


async def test_a_token_of_another_session_does_not_let_a_run_command_it(parent_session: ParentSession) -> None:
    other = await parent_session.push.start_session(parent_session.workspace)
    started = await parent_session.open()
    attach = {"sessionId": other.session_id, "lastSeenSeq": 0, "attachToken": other.attach_token}
    message = {"sessionId": other.session_id, "clientMessageId": "msg_1", "text": "say: hi"}

    told = await parent_session.run(started, ("attach_session", attach), ("send_user_message", message))

    assert told[1]["code"] == "ATTACH_FORBIDDEN"


async def test_a_child_has_what_is_left_of_its_runs_budget(parent_session: ParentSession) -> None:
    started = await parent_session.open(limits={"maxTurns": 5})

    told = await parent_session.run(
        started, parent_session.start(limits={"maxTurns": 100, "maxTokens": 7}), parent_session.start(limits={"maxTurns": 2})
    )

    budgets = [(await parent_session.get_info(one["payload"]["sessionId"]))["limits"] for one in told]
    assert [(budget["maxTurns"], budget["maxTokens"]) for budget in budgets] == [(4, 7), (2, None)]


async def test_what_children_use_counts_for_the_run(parent_session: ParentSession) -> None:
    """Each of the child's runs is within its own limit; together they take all that the parent has."""
    started = await parent_session.open(limits={"maxTurns": 3})
    messages = [
        ("send_user_message", {"sessionId": "CHILD", "clientMessageId": f"msg_{number}", "text": "say: hi"})
        for number in range(2)
    ]

    await parent_session.begin(
        started,
        parent_session.start(),
        messages[0],
        ("until", "run_complete"),
        messages[1],
        ("until", "run_complete"),
        then="sleep 60",
    )

    completed = (await parent_session.push.read_until("run_complete"))[-1].payload
    assert completed["outcome"] == "failed"
    assert "used up its budget" in completed["summary"]


async def test_a_child_is_not_taken_up_after_a_restart(dedicated_daemon: StartDaemon, connect: Connect, workspace: Path) -> None:
    """A session that waits for a decision outlives its daemon; a child does not."""
    daemon = dedicated_daemon()
    parent = ParentSession(daemon, await connect(daemon), workspace)
    started = await parent.open()
    await parent.begin(
        started, parent.start(), make_message("run: touch late"), ("until", "approval_required"), then="echo > ready; sleep 60"
    )
    while "ready" not in {path.name for path in workspace.iterdir()}:
        await parent.push.ping()
    child = json.loads((workspace / "told.json").read_text())[0]["payload"]["sessionId"]
    assert await parent.get_state(child) == "awaiting_approval"

    daemon.stop()
    daemon.start()

    again = await connect(daemon)
    about = await again.request_payload("get_session", {"sessionId": child}, session_id=child)
    assert (about["state"], about["activeRunId"]) == ("failed", None)
    assert not (workspace / "late").exists()
