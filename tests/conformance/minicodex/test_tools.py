"""Tools: results are MCP CallToolResults, and a session's MCP servers appear with their names in front."""

import json
import sys
from pathlib import Path

import pytest
from mcp_types import CallToolResult
from tests.conformance.minicodex.conftest import Play
from tests.conformance.minicodex.shorthand import get_result_text

from switchtower.testing import model_script as script
from switchtower.testing.minicodex_client import Frame, MiniCodexClient

FRIENDLY = Path(__file__).parents[2] / "tools" / "mcp" / "servers" / "friendly.py"


def list_outputs(client: MiniCodexClient) -> list[Frame]:
    return [item for item in client.ledger.transcript if item["type"] == "function_call_output"]


@pytest.mark.requirement("minicodex:tools:call-tool-result")
async def test_the_result_of_our_own_tools_is_a_call_tool_result_too(minicodex_client: MiniCodexClient) -> None:
    await minicodex_client.run("read README.md\nread missing.txt")
    good, bad = list_outputs(minicodex_client)
    for output in (good, bad):
        CallToolResult.model_validate(output["result"])
    assert (good["result"]["isError"], bad["result"]["isError"]) == (False, True)
    assert "with two lines" in get_result_text(good)


@pytest.mark.requirement("minicodex:tools:mcp-keys", "minicodex:tools:call-tool-result")
async def test_a_tool_of_an_mcp_server_goes_by_server_and_tool_and_its_result_is_the_server_s(
    start_scripted_session: Play, workspace: Path
) -> None:
    servers = {"mcpServers": {"friendly": {"command": sys.executable, "args": [str(FRIENDLY), "stdio"]}}}
    (workspace / ".mcp.json").write_text(json.dumps(servers))
    mini = await start_scripted_session(
        script.reply_call("friendly_add", a=2, b=3),
        script.reply_call("friendly_picture", size=3),
        script.reply_call("friendly_fail"),
        script.reply_text("Five."),
    )
    await mini.execute("send", text="add")
    keys = []
    for _ in range(4):
        pending = await mini.next_of_type("approval_pending")
        keys.append(pending["tool_key"])
        await mini.execute("approve", call_id=pending["call_id"])
    assert (await mini.wait_for_end())["status"] == "finished"
    assert keys[1:] == ["friendly_add", "friendly_picture", "friendly_fail"]
    names = {item["call_id"]: item["name"] for item in mini.ledger.transcript if item["type"] == "tool_call"}
    told = {names[output["call_id"]]: output["result"] for output in list_outputs(mini)}
    for result in told.values():
        CallToolResult.model_validate(result)
    assert told["friendly_add"]["structuredContent"] == {"result": 5}
    assert [block["type"] for block in told["friendly_picture"]["content"]] == ["text", "image"]
    assert told["friendly_fail"]["isError"] is True
    assert sorted(names) == sorted(output["call_id"] for output in list_outputs(mini))
    assert await mini.request_snapshot() == mini.ledger.build_snapshot()
