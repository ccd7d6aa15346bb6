"""Servers that mean harm, or are merely broken. Whatever they do, a call is answered, memory stays bounded, the next call
works, and nothing is left of them."""

import asyncio
import json
import os
import resource
from pathlib import Path

import pytest
from tests.tools.mcp.parts import Bench, hostile

from switchtower.tools.running import proc


async def test_a_server_that_never_answers_is_given_up_on_and_told_so(bench: Bench, tmp_path: Path) -> None:
    bench.manager(call_s=0.3)
    witness = tmp_path / "witness"
    bench.configure({"one": hostile("mute", str(witness))})
    tools = await bench.tools()
    output = await bench.call(tools["one_go"])
    assert output.error is not None
    assert (output.error.type, output.error.retryable) == ("EXEC_TIMEOUT", True)
    assert output.text == "the MCP server `one` did not answer within 0.3 s"
    async with asyncio.timeout(60):
        while not witness.exists():
            await asyncio.sleep(0.01)


async def test_what_is_no_message_on_its_output_does_no_harm(bench: Bench) -> None:
    bench.configure({"one": hostile("stray")})
    tools = await bench.tools()
    for _ in range(3):
        assert (await bench.call(tools["one_go"])).text == "fine"
    assert bench.reports == []


async def test_a_flood_of_notifications_is_survived_and_others_are_served_meanwhile(bench: Bench) -> None:
    bench.configure({"flood": hostile("flood"), "calm": hostile("plain")})
    tools = await bench.tools()
    flood = asyncio.create_task(bench.call(tools["flood_go"]))
    served = 0
    while not flood.done():
        assert (await bench.call(tools["calm_go"])).text == "fine"
        served += 1
    assert flood.result().text == "fine"
    assert served > 10
    assert 0 < len(bench.progress) < 5_000


async def test_a_flood_on_the_error_stream_is_survived(bench: Bench) -> None:
    bench.configure({"one": hostile("shout")})
    tools = await bench.tools()
    assert (await bench.call(tools["one_go"])).text == "fine"


@pytest.mark.parametrize("way", ["huge-front", "huge-behind", "huge-nameless"])
async def test_an_answer_of_fifty_megabytes_is_an_error_and_not_kept(bench: Bench, way: str) -> None:
    bench.configure({"one": hostile(way)})
    tools = await bench.tools()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output = await bench.call(tools["one_go"])
    assert output.is_error
    assert "the answer is longer than 8 MiB" in output.text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024
    again = await bench.call(tools["one_go"])
    assert "the answer is longer than 8 MiB" in again.text
    assert bench.reports == []


async def test_a_notification_of_twenty_megabytes_fails_no_call(bench: Bench) -> None:
    bench.configure({"one": hostile("huge-notification")})
    assert (await bench.call((await bench.tools())["one_go"])).text == "fine"


async def test_an_answer_that_is_too_long_fails_only_the_call_it_belongs_to(bench: Bench) -> None:
    bench.configure({"one": hostile("huge-of-two")})
    go = (await bench.tools())["one_go"]
    outputs = await asyncio.gather(bench.call(go), bench.call(go))
    assert sorted(output.is_error for output in outputs) == [False, True]


async def test_of_ten_thousand_tools_the_first_ones_are_used_and_it_is_reported(bench: Bench) -> None:
    bench.configure({"one": hostile("many")})
    tools = await bench.tools()
    assert list(tools) == [f"one_tool{number}" for number in range(128)]
    assert bench.codes() == ["MCP_TOOLS_LEFT_OUT"]
    assert "only its first 128 tools" in bench.told()
    await bench.tools()
    assert len(bench.reports) == 1


async def test_the_schemas_of_one_server_cannot_fill_a_models_context(bench: Bench) -> None:
    bench.configure({"one": hostile("wordy")})
    tools = await bench.tools()
    assert 0 < sum(len(json.dumps(tool.schema)) for tool in tools.values()) <= 256 * 1024
    assert bench.codes() == ["MCP_TOOLS_LEFT_OUT"]


async def test_a_list_of_tools_without_end_comes_to_an_end(bench: Bench) -> None:
    bench.configure({"one": hostile("endless")})
    assert await bench.tools() == {}
    assert bench.codes() == ["MCP_TOOLS_LEFT_OUT"]


async def test_odd_names_and_broken_tools_become_usable_names_or_nothing(bench: Bench) -> None:
    bench.configure({"s p/a→ce": hostile("odd")})
    tools = await bench.tools()
    assert len(tools) == 8
    for name, tool in tools.items():
        assert 0 < len(name) <= 64
        assert all(character.isascii() and (character.isalnum() or character in "_-") for character in name)
        assert (await bench.call(tool)).text == "fine"
    assert "too long" in bench.told()
    assert list(await bench.tools()) == list(tools)


async def test_a_tool_cannot_take_the_name_of_one_of_ours(bench: Bench) -> None:
    bench.configure({"read": hostile("plain")})
    bench.manager(reserved=("read_go",))
    assert "read_go" not in await bench.tools()


async def test_a_description_is_cut(bench: Bench) -> None:
    bench.configure({"one": hostile("plain")})
    assert len((await bench.tools())["one_go"].description) == 2000


async def test_questions_of_a_server_are_declined_and_its_roots_are_the_workspace(bench: Bench) -> None:
    bench.configure({"one": hostile("asks")})
    answers = json.loads((await bench.call((await bench.tools())["one_go"])).text)
    assert "error" in answers["sampling/createMessage"]
    assert "error" in answers["elicitation/create"]
    assert answers["no/such/thing"]["error"]["code"] == -32601
    assert answers["ping"]["result"] == {}
    (root,) = answers["roots/list"]["result"]["roots"]
    assert root["uri"] == bench.workspace.as_uri()


async def test_questions_within_an_answer_are_declined_too_and_roots_are_given(bench: Bench) -> None:
    bench.configure({"roots": hostile("modern-roots"), "asks": hostile("modern-asks"), "endless": hostile("modern-endless")})
    tools = await bench.tools()
    answers = json.loads((await bench.call(tools["roots_go"])).text)
    assert [root["uri"] for root in answers["one"]["roots"]] == [bench.workspace.as_uri()]
    declined = await bench.call(tools["asks_go"])
    assert declined.is_error
    assert "not supported" in declined.text
    endless = await bench.call(tools["endless_go"])
    assert endless.is_error
    assert "an answer that does not follow the protocol" in endless.text
    assert bench.reports == []


async def test_a_server_that_asks_and_asks_without_listening_is_answered_now_and_then(bench: Bench) -> None:
    bench.configure({"one": hostile("interrogates")})
    go = (await bench.tools())["one_go"]
    assert (await bench.call(go)).text == "0"
    assert 0 < int((await bench.call(go)).text) < 10_000


async def test_an_answer_that_is_no_result_is_an_error(bench: Bench) -> None:
    bench.configure({"one": hostile("not-a-result")})
    output = await bench.call((await bench.tools())["one_go"])
    assert "an answer that does not follow the protocol" in output.text
    assert bench.reports == []


async def test_an_error_of_the_protocol_is_passed_on_without_our_secrets(bench: Bench) -> None:
    bench.configure({"one": hostile("refuses", env={"TOKEN": "abc-123-def-456"})})
    tools = await bench.tools()
    for _ in range(2):
        output = await bench.call(tools["one_go"])
        assert output.is_error
        assert output.text.startswith("the MCP server `one` answered: no, and the token is ")
        assert "abc-123" not in output.text
    assert bench.reports == []


async def test_a_schema_for_results_cannot_hold_up_the_daemon(bench: Bench) -> None:
    """The SDK would match the result against a pattern that takes longer than the universe will last."""
    bench.configure({"one": hostile("pattern")})
    async with asyncio.timeout(60):
        output = await bench.call((await bench.tools())["one_go"])
    assert output.text == "matched"


async def test_a_server_that_closes_its_output_is_taken_for_dead(bench: Bench) -> None:
    bench.configure({"one": hostile("closes-output")})
    output = await bench.call((await bench.tools())["one_go"])
    assert output.text == "the MCP server `one` closed its output"
    assert bench.processes() == []


async def test_a_server_that_closes_its_input_is_taken_for_dead(bench: Bench) -> None:
    bench.configure({"one": hostile("closes-input")})
    go = (await bench.tools())["one_go"]
    assert (await bench.call(go)).text == "fine"
    (pid,) = bench.processes()
    assert (await bench.call(go)).is_error
    assert (await bench.call(go)).text == "fine"
    assert pid not in bench.processes()
    assert bench.codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_RESTARTED"]


async def test_a_server_that_ignores_every_request_to_leave_is_killed(bench: Bench) -> None:
    bench.configure({"one": hostile("deaf")})
    await bench.tools()
    (pid,) = bench.processes()
    pidfd = os.pidfd_open(pid)
    await bench.servers.end_session(bench.session_id)
    assert proc.has_ended(pidfd)
    os.close(pidfd)


async def test_a_process_that_slipped_away_from_a_server_ends_with_it(bench: Bench) -> None:
    bench.configure({"one": hostile("background")})
    pid = int((await bench.call((await bench.tools())["one_go"])).text)
    pidfd = os.pidfd_open(pid)
    assert not proc.has_ended(pidfd)
    await bench.servers.end_session(bench.session_id)
    assert proc.has_ended(pidfd)
    os.close(pidfd)


async def test_the_last_answer_of_a_server_is_heard_although_its_child_holds_the_pipe(bench: Bench) -> None:
    bench.configure({"one": hostile("background-and-leaves")})
    tools = await bench.tools()
    assert (await bench.call(tools["one_go"])).text == "bye"
    # The server is gone, and what it left must not make it look alive.
    again = await bench.call(tools["one_go"])
    while again.is_error:  # sent before its end was noticed, a call may have acted, and is not made a second time
        assert "ended" in again.text
        again = await bench.call(tools["one_go"])
    assert again.text == "bye"
    assert bench.codes()[-1] == "MCP_SERVER_RESTARTED"


async def test_of_very_many_parts_some_are_kept(bench: Bench) -> None:
    bench.configure({"one": hostile("parts")})
    output = await bench.call((await bench.tools())["one_go"])
    assert output.result is not None
    assert len(output.result["content"]) == 257
    assert output.result["content"][-1]["text"] == "[744 more parts were left out]"


async def test_one_servers_end_does_not_touch_its_neighbour(bench: Bench) -> None:
    bench.configure({"dies": hostile("dies"), "stays": hostile("plain")})
    tools = await bench.tools()
    await bench.call(tools["stays_go"])
    before = set(bench.processes())
    await bench.call(tools["dies_go"])
    assert len(before & set(bench.processes())) == 1
    assert (await bench.call(tools["stays_go"])).text == "fine"
