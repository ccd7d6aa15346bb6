"""Our frames and files beside pi's published package, whose types and loader are the judges.

`npm install --prefix DIR @mariozechner/pi-coding-agent@0.73.1 typescript`, then `PI_PACKAGES=DIR`. The install takes minutes, so
that it is no part of the suite; `closed.py` has the same types in our words and is checked with every frame of every test.
"""

import asyncio
import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient

OURS = {"extension_ui_closed", "extension_ui_request", "bash_start", "bash_end", "session_info_changed", "notice"}
"""Events that pi's type does not have, or has for its own extensions."""
EACH = 4
"""Events of a kind that are compiled."""

OPEN = """
const {SessionManager} = await import(process.argv[1]);
const opened = SessionManager.open(process.argv[2]);
console.log(JSON.stringify({
    messages: opened.buildSessionContext().messages, id: opened.getSessionId(), name: opened.getSessionName()}))
"""


@pytest.fixture
def packages() -> Path:
    named = os.environ.get("PI_PACKAGES")
    if named is None or shutil.which("node") is None:
        pytest.skip("PI_PACKAGES names no folder with pi's npm package, or there is no Node")
    return Path(named) / "node_modules"


@pytest.fixture
async def played_client(start_pi: StartPi, connect_pi: Join, workspace: Path) -> CheckedClient:
    """A client that has seen a session with a bit of everything."""
    pi = await connect_pi(start_pi(policy="yolo"), door="websocket")
    await pi.start_session(workspace, sessionId=f"played-{pi.make_id()}")
    session_id = pi.frames[-1]["data"]["sessionInfo"]["sessionId"]
    for message in ("say: hello", "run: echo hi", "write notes.txt: x"):
        await pi.execute("prompt", sessionId=session_id, message=message)
    await pi.execute("bash", sessionId=session_id, command="echo hi")
    stopped = await pi.start_prompt(session_id, "count 1000000")
    await pi.next_event("message_update")
    await pi.execute("abort", sessionId=session_id)
    await pi.wait_for_response(stopped)
    await pi.request("compact", sessionId=session_id)
    return pi


def _get_session_id(pi: CheckedClient) -> str:
    return str(next(frame["sessionId"] for frame in pi.frames if frame["type"] == "event"))


def _drop_extra_fields(value: Any) -> Any:
    """Without the fields that section 14 lets us add, which a literal of the type may not have."""
    if isinstance(value, list):
        return [_drop_extra_fields(each) for each in value]
    if not isinstance(value, dict):
        return value
    ours = set() if value.get("role") == "bashExecution" else {"truncated"}
    if value.get("type") == "tool_execution_update":
        ours.add("delta")
    return {name: _drop_extra_fields(each) for name, each in value.items() if name not in ours}


async def _run(*command: object) -> str:
    done = await asyncio.to_thread(subprocess.run, [str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.requirement("pi:event:published-types")
@pytest.mark.parametrize("pi_transport", ["websocket"])
async def test_events_messages_figures_and_files_have_pis_published_types(packages: Path, played_client: CheckedClient) -> None:
    session_id = _get_session_id(played_client)
    kinds: Counter[tuple[str, str]] = Counter()
    source = [
        'import type { AgentSessionEvent, SessionStats, FileEntry } from "@mariozechner/pi-coding-agent";',
        'import type { AgentMessage } from "@mariozechner/pi-agent-core";',
        'import type { Model } from "@mariozechner/pi-ai";',
    ]
    for number, event in enumerate(played_client.list_events(session_id)):
        kind = event["type"], event.get("assistantMessageEvent", {}).get("type", "")
        kinds[kind] += 1
        if event["type"] not in OURS and kinds[kind] <= EACH:
            literal = json.dumps(_drop_extra_fields(event))
            if event["type"] == "compaction_end" and "result" not in event:
                literal = f'{{"result": undefined, {literal[1:]}'  # which JSON has no word for
            source.append(f"export const event{number}: AgentSessionEvent = {literal};")
    path = (await played_client.execute("export_jsonl", sessionId=session_id))["path"]
    values = {
        "messages: AgentMessage[]": (await played_client.execute("get_messages", sessionId=session_id))["messages"],
        "stats: SessionStats": await played_client.execute("get_session_stats", sessionId=session_id),
        "models: Model<any>[]": (await played_client.execute("get_available_models", sessionId=session_id))["models"],
        "file: FileEntry[]": [json.loads(line) for line in Path(path).read_text().splitlines()],
    }
    source += [f"export const {name} = {json.dumps(_drop_extra_fields(value))};" for name, value in values.items()]
    checked = packages.parent / f"check-{os.getpid()}.ts"
    checked.write_text("\n".join(source))
    options = ("--noEmit", "--skipLibCheck", "--strict", "--target", "es2022")
    modules = ("--module", "nodenext", "--moduleResolution", "nodenext")
    try:
        await _run("node", packages / "typescript" / "bin" / "tsc", *options, *modules, checked)
    finally:
        checked.unlink()


@pytest.mark.requirement("pi:stored:published")
@pytest.mark.parametrize("pi_transport", ["websocket"])
async def test_pis_own_loader_reads_what_is_exported(packages: Path, played_client: CheckedClient) -> None:
    session_id = _get_session_id(played_client)
    await played_client.execute("set_session_name", sessionId=session_id, name="Named")
    path = (await played_client.execute("export_jsonl", sessionId=session_id))["path"]
    module = packages / "@mariozechner" / "pi-coding-agent" / "dist" / "core" / "session-manager.js"
    read = json.loads(await _run("node", "--input-type=module", "-e", OPEN, module, path))
    assert (read["id"], read["name"]) == (session_id, "Named")
    assert read["messages"] == (await played_client.execute("get_messages", sessionId=session_id))["messages"]
