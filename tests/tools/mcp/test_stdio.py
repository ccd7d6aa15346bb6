"""A real server, made with the official SDK, over stdio."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from tests.tools.mcp.parts import McpSessionHarness, make_hostile, make_well_behaved

from switchtower.tools import outcome, registry


async def test_a_servers_tools_are_named_after_it_and_can_be_called(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"friend": make_well_behaved()})
    tools = await mcp_session.list_tools()
    add = tools["friend_add"]
    assert add.description == "Adds two numbers"
    assert add.schema["type"] == "object"
    assert set(add.schema["properties"]) == {"a", "b"}
    output = await mcp_session.call(add, a=20, b=22)
    assert (output.text, output.is_error, output.error) == ("42", False, None)
    assert output.result is not None
    assert output.result["content"] == [{"type": "text", "text": "42"}]
    assert output.result["structuredContent"] == {"result": 42}
    assert output.result["isError"] is False
    failed = await mcp_session.call(tools["friend_fail"])
    assert failed.is_error
    assert failed.error is not None
    assert failed.result is not None
    assert failed.result["isError"] is True
    refused = await mcp_session.call(tools["friend_add"], a="no number")
    assert "validation error" in refused.text
    assert mcp_session.reports == []


async def test_a_server_stays_for_the_sessions_next_run_and_goes_with_the_session(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"friend": make_well_behaved()})
    first = await mcp_session.call((await mcp_session.list_tools())["friend_where"])
    second = await mcp_session.call((await mcp_session.list_tools())["friend_where"])
    assert first.text == second.text
    assert first.text.split()[0] == str(mcp_session.workspace)
    assert len(mcp_session.asked) == 1
    await mcp_session.servers.end_session(mcp_session.session_id)
    assert mcp_session.list_processes() == []
    third = await mcp_session.call((await mcp_session.list_tools())["friend_where"])
    assert third.text != first.text
    assert len(mcp_session.asked) == 2


async def test_progress_is_passed_on_before_the_result(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"friend": make_well_behaved()})
    output = await mcp_session.call((await mcp_session.list_tools())["friend_count"], to=3)
    assert output.text == "counted"
    assert mcp_session.progress == ["1 of 3: at 1\n", "2 of 3: at 2\n", "3 of 3: at 3\n"]


async def test_progress_that_came_while_nobody_could_take_it_is_not_lost(mcp_session: McpSessionHarness) -> None:
    """Who is told takes so long over the first word that the result is there before the second."""
    mcp_session.configure({"one": make_hostile("counts")})
    go = (await mcp_session.list_tools())["one_go"]
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)
        if len(told) == 1:
            await mcp_session.call(go)  # answered in order: when this is done, all of the first call has arrived

    output = await go.execute({}, outcome.ToolContext(workspace="", run_id="", progress=tell))
    assert output.text == "fine"
    assert told == ["1\n", "2\n", "3\n"]


async def test_a_cancelled_call_returns_at_once_and_the_server_is_told(mcp_session: McpSessionHarness, tmp_path: Path) -> None:
    mcp_session.configure({"friend": make_well_behaved()})
    tools = await mcp_session.list_tools()
    file = tmp_path / "witness"
    call = asyncio.create_task(mcp_session.call(tools["friend_wait"], file=str(file)))
    async with asyncio.timeout(60):
        await _wait_until_written(file, "began")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await _wait_until_written(file, "cancelled")
    assert (await mcp_session.call(tools["friend_add"], a=1, b=1)).text == "2"


async def test_a_new_tool_is_there_in_the_next_run(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"friend": make_well_behaved()})
    tools = await mcp_session.list_tools()
    assert "friend_grown" not in tools
    await mcp_session.call(tools["friend_grow"])
    tools = await mcp_session.list_tools()
    assert (await mcp_session.call(tools["friend_grown"])).text == "grown"


async def test_a_picture_is_described_to_the_model_and_kept_for_the_journal(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"friend": make_well_behaved()})
    tools = await mcp_session.list_tools()
    small = await mcp_session.call(tools["friend_picture"], size=3000)
    assert small.text == "a picture\n[image, image/png, 3000 bytes, not shown]"
    assert small.result is not None
    assert [part["type"] for part in small.result["content"]] == ["text", "image"]
    assert small.result["_meta"]["made"] == "here"
    large = await mcp_session.call(tools["friend_picture"], size=300_000)
    assert large.result is not None
    assert large.result["content"][1] == {
        "type": "text",
        "text": "[image, image/png, 300000 bytes: left out, as it is longer than 256 KiB]",
    }


async def test_of_a_long_text_the_beginning_and_the_end_are_kept(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"friend": make_well_behaved()})
    output = await mcp_session.call((await mcp_session.list_tools())["friend_long_text"], length=1_000_000)
    assert output.text.startswith("0123456789")
    assert output.text.endswith("0123456789")
    assert "bytes left out" in output.text
    assert len(output.text) < 70_000
    assert output.result is not None
    assert len(json.dumps(output.result)) < 400_000


async def test_a_server_gets_its_own_variables_and_no_others(mcp_session: McpSessionHarness) -> None:
    mcp_session.variables |= {"API_KEY": "of the daemon", "LC_ALL": "C", "MINE": "passed on", "TOWER_HOME": "/secret"}
    mcp_session.configure({"friend": make_well_behaved(env={"GIVEN": "${MINE}", "TOWER_RUN": "a lie", "TOWER_DAEMON": "a lie"})})
    output = await mcp_session.call((await mcp_session.list_tools())["friend_environment"])
    environment = json.loads(output.text)
    assert environment["GIVEN"] == "passed on"
    assert environment["LC_ALL"] == "C"
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["TOWER_DAEMON"] == mcp_session.daemon_id
    assert environment["TOWER_RUN"].startswith(f"mcp_{mcp_session.session_id}_")
    assert not {"API_KEY", "MINE", "TOWER_HOME"} & set(environment)


async def test_several_servers_work_side_by_side(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_well_behaved(), "two": make_hostile("plain"), "three": make_hostile("plain")})
    tools = await mcp_session.list_tools()
    assert {"one_add", "two_go", "three_go"} <= set(tools)
    assert (await mcp_session.call(tools["two_go"])).text == "fine"
    assert [server.name for server in mcp_session.asked] == ["one", "two", "three"]


async def test_only_the_users_own_server_is_believed_that_a_tool_just_reads(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"theirs": make_hostile("plain")})
    mcp_session.configure({"own": make_hostile("plain")}, own=True)
    tools = await mcp_session.list_tools()
    assert tools["own_go"].effect is outcome.ToolEffect.READ
    assert tools["theirs_go"].effect is outcome.ToolEffect.EXECUTE


async def test_arguments_that_are_no_json_or_too_long_are_refused_before_the_call(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("plain")})
    tools = await mcp_session.list_tools()
    toolbox = registry.Toolbox(tools.values())
    for args in ({"x": object()}, {"x": "a" * 1_100_000}):
        refused = toolbox.check("one_go", args, mcp_session.make_context())
        assert refused is not None
        assert "the arguments" in refused.text
    assert toolbox.check("one_go", {"x": [1, None, {"y": "z"}]}, mcp_session.make_context()) is None


async def _wait_until_written(file: Path, words: str) -> None:
    while not file.exists() or file.read_text() != words:
        await asyncio.sleep(0.01)
