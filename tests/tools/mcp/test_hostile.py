"""Servers that mean harm, or are merely broken. Whatever they do, a call is answered, memory stays bounded, the next call
works, and nothing is left of them."""

import asyncio
import json
import os
import resource
from pathlib import Path

import pytest
from tests.tools.mcp.parts import McpSessionHarness, make_hostile

from switchtower.tools.processes import proc


async def test_a_server_that_never_answers_is_given_up_on_and_told_so(mcp_session: McpSessionHarness, tmp_path: Path) -> None:
    mcp_session.make_manager(call_s=0.3)
    witness = tmp_path / "witness"
    mcp_session.configure({"one": make_hostile("mute", str(witness))})
    tools = await mcp_session.list_tools()
    output = await mcp_session.call(tools["one_go"])
    assert output.error is not None
    assert (output.error.type, output.error.retryable) == ("EXEC_TIMEOUT", True)
    assert output.text == "the MCP server `one` did not answer within 0.3 s"
    async with asyncio.timeout(60):
        while not witness.exists():
            await asyncio.sleep(0.01)


async def test_what_is_no_message_on_its_output_does_no_harm(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("stray")})
    tools = await mcp_session.list_tools()
    for _ in range(3):
        assert (await mcp_session.call(tools["one_go"])).text == "fine"
    assert mcp_session.reports == []


async def test_a_flood_of_notifications_is_survived_and_others_are_served_meanwhile(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"flood": make_hostile("flood"), "calm": make_hostile("plain")})
    tools = await mcp_session.list_tools()
    flood = asyncio.create_task(mcp_session.call(tools["flood_go"]))
    served = 0
    while not flood.done():
        assert (await mcp_session.call(tools["calm_go"])).text == "fine"
        served += 1
    assert flood.result().text == "fine"
    assert served > 10
    assert 0 < len(mcp_session.progress) < 5_000


async def test_a_flood_on_the_error_stream_is_survived(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("shout")})
    tools = await mcp_session.list_tools()
    assert (await mcp_session.call(tools["one_go"])).text == "fine"


@pytest.mark.parametrize("way", ["huge-front", "huge-behind", "huge-nameless"])
async def test_an_answer_of_fifty_megabytes_is_an_error_and_not_kept(mcp_session: McpSessionHarness, way: str) -> None:
    mcp_session.configure({"one": make_hostile(way)})
    tools = await mcp_session.list_tools()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output = await mcp_session.call(tools["one_go"])
    assert output.is_error
    assert "the answer is longer than 8 MiB" in output.text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024
    again = await mcp_session.call(tools["one_go"])
    assert "the answer is longer than 8 MiB" in again.text
    assert mcp_session.reports == []


async def test_a_notification_of_twenty_megabytes_fails_no_call(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("huge-notification")})
    assert (await mcp_session.call((await mcp_session.list_tools())["one_go"])).text == "fine"


async def test_an_answer_that_is_too_long_fails_only_the_call_it_belongs_to(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("huge-of-two")})
    go = (await mcp_session.list_tools())["one_go"]
    outputs = await asyncio.gather(mcp_session.call(go), mcp_session.call(go))
    assert sorted(output.is_error for output in outputs) == [False, True]


async def test_of_ten_thousand_tools_the_first_ones_are_used_and_it_is_reported(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("many")})
    tools = await mcp_session.list_tools()
    assert list(tools) == [f"one_tool{number}" for number in range(128)]
    assert mcp_session.list_codes() == ["MCP_TOOLS_LEFT_OUT"]
    assert "only its first 128 tools" in mcp_session.read_reports()
    await mcp_session.list_tools()
    assert len(mcp_session.reports) == 1


async def test_the_schemas_of_one_server_cannot_fill_a_models_context(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("wordy")})
    tools = await mcp_session.list_tools()
    assert 0 < sum(len(json.dumps(tool.schema)) for tool in tools.values()) <= 256 * 1024
    assert mcp_session.list_codes() == ["MCP_TOOLS_LEFT_OUT"]


async def test_a_list_of_tools_without_end_comes_to_an_end(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("endless")})
    assert await mcp_session.list_tools() == {}
    assert mcp_session.list_codes() == ["MCP_TOOLS_LEFT_OUT"]


async def test_odd_names_and_broken_tools_become_usable_names_or_nothing(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"s p/a→ce": make_hostile("odd")})
    tools = await mcp_session.list_tools()
    assert len(tools) == 8
    for name, tool in tools.items():
        assert 0 < len(name) <= 64
        assert all(character.isascii() and (character.isalnum() or character in "_-") for character in name)
        assert (await mcp_session.call(tool)).text == "fine"
    assert "too long" in mcp_session.read_reports()
    assert list(await mcp_session.list_tools()) == list(tools)


async def test_a_tool_cannot_take_the_name_of_one_of_ours(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"read": make_hostile("plain")})
    mcp_session.make_manager(reserved=("read_go",))
    assert "read_go" not in await mcp_session.list_tools()


async def test_a_description_is_cut(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("plain")})
    assert len((await mcp_session.list_tools())["one_go"].description) == 2000


async def test_questions_of_a_server_are_declined_and_its_roots_are_the_workspace(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("asks")})
    answers = json.loads((await mcp_session.call((await mcp_session.list_tools())["one_go"])).text)
    assert "error" in answers["sampling/createMessage"]
    assert "error" in answers["elicitation/create"]
    assert answers["no/such/thing"]["error"]["code"] == -32601
    assert answers["ping"]["result"] == {}
    (root,) = answers["roots/list"]["result"]["roots"]
    assert root["uri"] == mcp_session.workspace.as_uri()


async def test_questions_within_an_answer_are_declined_too_and_roots_are_given(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure(
        {"roots": make_hostile("modern-roots"), "asks": make_hostile("modern-asks"), "endless": make_hostile("modern-endless")}
    )
    tools = await mcp_session.list_tools()
    answers = json.loads((await mcp_session.call(tools["roots_go"])).text)
    assert [root["uri"] for root in answers["one"]["roots"]] == [mcp_session.workspace.as_uri()]
    declined = await mcp_session.call(tools["asks_go"])
    assert declined.is_error
    assert "not supported" in declined.text
    endless = await mcp_session.call(tools["endless_go"])
    assert endless.is_error
    assert "an answer that does not follow the protocol" in endless.text
    assert mcp_session.reports == []


async def test_a_server_that_asks_and_asks_without_listening_is_answered_now_and_then(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("interrogates")})
    go = (await mcp_session.list_tools())["one_go"]
    assert (await mcp_session.call(go)).text == "0"
    assert 0 < int((await mcp_session.call(go)).text) < 10_000


async def test_an_answer_that_is_no_result_is_an_error(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("not-a-result")})
    output = await mcp_session.call((await mcp_session.list_tools())["one_go"])
    assert "an answer that does not follow the protocol" in output.text
    assert mcp_session.reports == []


async def test_an_error_of_the_protocol_is_passed_on_without_our_secrets(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("refuses", env={"TOKEN": "abc-123-def-456"})})
    tools = await mcp_session.list_tools()
    for _ in range(2):
        output = await mcp_session.call(tools["one_go"])
        assert output.is_error
        assert output.text.startswith("the MCP server `one` answered: no, and the token is ")
        assert "abc-123" not in output.text
    assert mcp_session.reports == []


async def test_a_schema_for_results_cannot_hold_up_the_daemon(mcp_session: McpSessionHarness) -> None:
    """The SDK would match the result against a pattern that takes longer than the universe will last."""
    mcp_session.configure({"one": make_hostile("pattern")})
    async with asyncio.timeout(60):
        output = await mcp_session.call((await mcp_session.list_tools())["one_go"])
    assert output.text == "matched"


async def test_a_server_that_closes_its_output_is_taken_for_dead(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("closes-output")})
    output = await mcp_session.call((await mcp_session.list_tools())["one_go"])
    assert output.text == "the MCP server `one` closed its output"
    assert mcp_session.list_processes() == []


async def test_a_server_that_closes_its_input_is_taken_for_dead(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("closes-input")})
    go = (await mcp_session.list_tools())["one_go"]
    assert (await mcp_session.call(go)).text == "fine"
    (pid,) = mcp_session.list_processes()
    assert (await mcp_session.call(go)).is_error
    assert (await mcp_session.call(go)).text == "fine"
    assert pid not in mcp_session.list_processes()
    assert mcp_session.list_codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_RESTARTED"]


async def test_a_server_that_ignores_every_request_to_leave_is_killed(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("deaf")})
    await mcp_session.list_tools()
    (pid,) = mcp_session.list_processes()
    pidfd = os.pidfd_open(pid)
    await mcp_session.servers.end_session(mcp_session.session_id)
    assert proc.has_ended(pidfd)
    os.close(pidfd)


async def test_a_process_that_slipped_away_from_a_server_ends_with_it(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("background")})
    pid = int((await mcp_session.call((await mcp_session.list_tools())["one_go"])).text)
    pidfd = os.pidfd_open(pid)
    assert not proc.has_ended(pidfd)
    await mcp_session.servers.end_session(mcp_session.session_id)
    assert proc.has_ended(pidfd)
    os.close(pidfd)


async def test_the_last_answer_of_a_server_is_heard_although_its_child_holds_the_pipe(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("background-and-leaves")})
    tools = await mcp_session.list_tools()
    assert (await mcp_session.call(tools["one_go"])).text == "bye"
    # The server is gone, and what it left must not make it look alive.
    again = await mcp_session.call(tools["one_go"])
    while again.is_error:  # sent before its end was noticed, a call may have acted, and is not made a second time
        assert "ended" in again.text
        again = await mcp_session.call(tools["one_go"])
    assert again.text == "bye"
    assert mcp_session.list_codes()[-1] == "MCP_SERVER_RESTARTED"


async def test_of_very_many_parts_some_are_kept(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("parts")})
    output = await mcp_session.call((await mcp_session.list_tools())["one_go"])
    assert output.result is not None
    assert len(output.result["content"]) == 257
    assert output.result["content"][-1]["text"] == "[744 more parts were left out]"


async def test_one_servers_end_does_not_touch_its_neighbour(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"dies": make_hostile("dies"), "stays": make_hostile("plain")})
    tools = await mcp_session.list_tools()
    await mcp_session.call(tools["stays_go"])
    before = set(mcp_session.list_processes())
    await mcp_session.call(tools["dies_go"])
    assert len(before & set(mcp_session.list_processes())) == 1
    assert (await mcp_session.call(tools["stays_go"])).text == "fine"
