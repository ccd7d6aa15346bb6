"""When a server is asked about, started, started again and ended."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop
from tests.tools.mcp.parts import SERVERS, McpSessionHarness, make_hostile, make_well_behaved
from tests.tools.running.watching import kill_with_watchdog

from switchtower.tools import mcp
from switchtower.tools.processes import proc
from switchtower.tools.sandboxes import sandbox


async def test_a_workspaces_server_is_asked_about_and_a_denied_one_is_left_out(mcp_session: McpSessionHarness) -> None:
    mcp_session.admits = False
    mcp_session.configure({"one": make_hostile("plain")})
    mcp_session.configure({"own": make_hostile("plain")}, own=True)
    assert set(await mcp_session.list_tools()) == {"own_go"}
    assert [server.name for server in mcp_session.asked] == ["one"]
    assert mcp_session.list_codes() == ["MCP_SERVER_DENIED"]
    assert "`one`" in mcp_session.read_reports()
    # Asked again in the next run, and allowed this time.
    mcp_session.admits = True
    assert set(await mcp_session.list_tools()) == {"one_go", "own_go"}
    assert len(mcp_session.asked) == 2


async def test_a_changed_entry_is_asked_about_anew_and_the_old_server_ends(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("plain")})
    await mcp_session.list_tools()
    before = mcp_session.list_processes()
    mcp_session.configure({"one": make_hostile("plain", "other")})
    await mcp_session.list_tools()
    assert len(mcp_session.asked) == 2
    assert mcp_session.asked[0].subject != mcp_session.asked[1].subject
    assert not set(before) & set(mcp_session.list_processes())
    mcp_session.configure({})
    assert await mcp_session.list_tools() == {}
    assert mcp_session.list_processes() == []


async def test_a_server_that_dies_in_a_call_is_reported_and_back_for_the_next_one(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"friend": make_well_behaved()})
    tools = await mcp_session.list_tools()
    output = await mcp_session.call(tools["friend_leave"], code=7)
    assert output.is_error
    assert output.text == "the MCP server `friend` ended with exit code 7"
    assert output.error is not None
    assert output.error.retryable
    assert mcp_session.list_codes() == ["MCP_SERVER_FAILED"]
    assert (await mcp_session.call(tools["friend_add"], a=1, b=2)).text == "3"
    assert mcp_session.list_codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_RESTARTED"]
    assert len(mcp_session.asked) == 1


async def test_all_calls_under_way_are_answered_when_the_server_dies_and_it_is_reported_once(
    mcp_session: McpSessionHarness, tmp_path: Path
) -> None:
    mcp_session.configure({"friend": make_well_behaved()})
    tools = await mcp_session.list_tools()
    waiting = [
        asyncio.create_task(mcp_session.call(tools["friend_wait"], file=str(tmp_path / f"witness{number}")))
        for number in range(3)
    ]
    async with asyncio.timeout(60):
        while not all((tmp_path / f"witness{number}").exists() for number in range(3)):
            await asyncio.sleep(0.01)
        await mcp_session.call(tools["friend_leave"], code=1)
        outputs = await asyncio.gather(*waiting)
    assert all(output.is_error and "ended with exit code 1" in output.text for output in outputs)
    assert mcp_session.list_codes() == ["MCP_SERVER_FAILED"]


async def test_what_a_dying_server_wrote_is_quoted_to_people(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("dies")})
    output = await mcp_session.call((await mcp_session.list_tools())["one_go"])
    assert output.text == "the MCP server `one` ended with exit code 7"
    assert "I am out of here" in mcp_session.read_reports()


async def test_a_server_that_keeps_dying_stays_down_until_the_next_run(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("dies")})
    tools = await mcp_session.list_tools()
    outputs = [await mcp_session.call(tools["one_go"]) for _ in range(5)]
    assert all(output.is_error for output in outputs)
    assert mcp_session.list_codes().count("MCP_SERVER_RESTARTED") == 3
    assert "now stays down" in outputs[4].text
    assert mcp_session.list_processes() == []
    assert "one_go" in await mcp_session.list_tools()
    assert len(mcp_session.asked) == 1


async def test_a_server_that_was_killed_between_runs_is_started_again(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("plain")})
    await mcp_session.list_tools()
    (pid,) = mcp_session.list_processes()
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert proc.wait_for_end([pidfd], 10)
    os.close(pidfd)
    tools = await mcp_session.list_tools()
    assert (await mcp_session.call(tools["one_go"])).text == "fine"
    assert mcp_session.list_codes() == ["MCP_SERVER_RESTARTED"]
    assert "SIGKILL" in mcp_session.read_reports()


async def test_a_server_that_leaves_at_first_is_tried_again(mcp_session: McpSessionHarness, tmp_path: Path) -> None:
    mcp_session.configure({"one": make_hostile("leaves-twice", str(tmp_path / "starts"))})
    tools = await mcp_session.list_tools()
    assert (await mcp_session.call(tools["one_go"])).text == "fine"
    assert (tmp_path / "starts").read_text() == "xxx"
    assert mcp_session.reports == []


async def test_a_server_that_never_starts_is_reported_and_the_others_serve(mcp_session: McpSessionHarness) -> None:
    mcp_session.variables |= {"TOKEN": "t0ken-0f-the-user", "LONG": "x" * 60_000}
    mcp_session.configure(
        {
            "gone": {"command": "no-such-program-anywhere"},
            "lost": make_hostile("plain", cwd="no/such/folder"),
            "long": make_hostile("plain", *["${LONG}"] * 60),
            "leaves": make_hostile("leaves", env={"TOKEN": "${TOKEN}"}),
            "good": make_hostile("plain"),
        }
    )
    assert set(await mcp_session.list_tools()) == {"good_go"}
    told = dict(zip([message.split("`")[1] for _, message in mcp_session.reports], mcp_session.reports, strict=True))
    assert "`no-such-program-anywhere` was not found; hint: install it" in told["gone"][1]
    assert "its folder does not exist" in told["lost"][1]
    assert "could not be started: Argument list too long" in told["long"][1]
    assert "ended with exit code 3" in told["leaves"][1]
    assert "cannot go on" in told["leaves"][1]
    assert "t0ken-0f-the-user" not in mcp_session.read_reports()
    assert set(mcp_session.list_codes()) == {"MCP_SERVER_FAILED"}
    assert "t0ken-0f-the-user" in mcp_session.learnt


async def test_a_server_that_is_not_ready_in_time_is_ended(mcp_session: McpSessionHarness) -> None:
    mcp_session.make_manager(start_s=0.5)
    mcp_session.configure({"silent": make_hostile("silent"), "rubbish": make_hostile("rubbish")})
    assert await mcp_session.list_tools() == {}
    assert mcp_session.list_codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_FAILED"]
    assert "was not ready in time" in mcp_session.read_reports()
    assert mcp_session.list_processes() == []


async def test_an_older_server_that_leaves_at_an_unknown_word_is_greeted_as_it_expects(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"old": make_hostile("strict")})
    tools = await mcp_session.list_tools()
    assert (await mcp_session.call(tools["old_go"])).text == "fine"
    assert mcp_session.reports == []


async def test_an_idle_server_is_stopped_and_comes_back_when_it_is_called(mcp_session: McpSessionHarness) -> None:
    mcp_session.make_manager(idle_s=0.05)
    mcp_session.configure({"one": make_hostile("plain")})
    tools = await mcp_session.list_tools()
    async with asyncio.timeout(60):
        while mcp_session.list_processes():
            await asyncio.sleep(0.01)
    assert (await mcp_session.call(tools["one_go"])).text == "fine"
    assert mcp_session.reports == []


async def test_a_call_that_takes_longer_than_the_idle_time_is_not_cut_short(mcp_session: McpSessionHarness) -> None:
    mcp_session.make_manager(idle_s=0.05, call_s=0.5)
    mcp_session.configure({"one": make_hostile("mute")})
    output = await mcp_session.call((await mcp_session.list_tools())["one_go"])
    assert "did not answer within 0.5 s" in output.text


async def test_a_cancelled_start_leaves_nothing(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"silent": make_hostile("silent"), "other": make_hostile("silent")})
    starting = asyncio.create_task(mcp_session.list_tools())
    async with asyncio.timeout(60):
        while len(mcp_session.list_processes()) < 2:
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert mcp_session.list_processes() == []


async def test_a_session_that_ends_during_a_start_ends_the_start(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"silent": make_hostile("silent")})
    starting = asyncio.create_task(mcp_session.list_tools())
    async with asyncio.timeout(60):
        while not mcp_session.list_processes():
            await asyncio.sleep(0.01)
        await mcp_session.servers.end_session(mcp_session.session_id)
        assert await starting == {}
    assert mcp_session.list_processes() == []


async def test_a_yes_that_comes_after_the_sessions_end_starts_nothing(mcp_session: McpSessionHarness) -> None:
    asked, decided = asyncio.Event(), asyncio.Event()

    async def admit(server: mcp.ServerConfig) -> bool:
        asked.set()
        await decided.wait()
        return True

    async def report(code: str, message: str) -> None:
        raise AssertionError(code)

    mcp_session.configure({"one": make_hostile("plain")})
    asking = asyncio.create_task(
        mcp_session.servers.list_tools(
            mcp_session.session_id, str(mcp_session.workspace), sandbox="local", admit=admit, report=report
        )
    )
    async with asyncio.timeout(60):
        await asked.wait()
        await mcp_session.servers.end_session(mcp_session.session_id)
        decided.set()
        assert await asking == ()
    assert mcp_session.list_processes() == []


async def test_a_closed_manager_starts_nothing(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"one": make_hostile("plain")})
    tools = await mcp_session.list_tools()
    await mcp_session.servers.close()
    assert mcp_session.list_processes() == []
    assert await mcp_session.list_tools() == {}
    assert (await mcp_session.call(tools["one_go"])).is_error
    assert mcp_session.list_processes() == []


async def test_a_refusal_to_ask_reaches_the_caller_and_leaves_nothing(mcp_session: McpSessionHarness) -> None:
    class Stop(Exception):
        pass

    async def admit(server: mcp.ServerConfig) -> bool:
        if server.name == "second":
            async with asyncio.timeout(60):
                while not mcp_session.list_processes():
                    await asyncio.sleep(0.01)
            raise Stop
        return True

    async def report(code: str, message: str) -> None:
        raise AssertionError(code)

    mcp_session.configure({"first": make_hostile("silent"), "second": make_hostile("silent")})
    with pytest.raises(Stop):
        await mcp_session.servers.list_tools(
            mcp_session.session_id, str(mcp_session.workspace), sandbox="local", admit=admit, report=report
        )
    assert mcp_session.list_processes() == []


async def test_a_workspaces_server_runs_in_the_sessions_sandbox_and_the_users_own_does_not(
    mcp_session: McpSessionHarness, tmp_path: Path
) -> None:
    if (trouble := sandbox.probe_sandbox("bubblewrap")) is not None:
        pytest.skip(trouble)
    if Path(sys.executable).is_relative_to("/tmp"):
        pytest.skip("this Python lies below /tmp, which is another folder in a sandbox")
    outside = tmp_path / "outside"
    mcp_session.configure(
        {"theirs": make_hostile("writes", str(outside)), "inside": make_hostile("writes", str(mcp_session.workspace / "file"))}
    )
    mcp_session.configure({"own": make_hostile("writes", str(tmp_path / "own"))}, own=True)
    tools = await mcp_session.list_tools(sandbox="bubblewrap")
    await mcp_session.call(tools["theirs_go"])
    assert not outside.exists()
    assert (await mcp_session.call(tools["inside_go"])).text == "fine"
    assert (mcp_session.workspace / "file").read_text() == "written"
    assert (await mcp_session.call(tools["own_go"])).text == "fine"
    assert (tmp_path / "own").read_text() == "written"


async def test_without_its_sandbox_a_workspaces_server_does_not_start(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"theirs": make_hostile("plain"), "gone": {"command": "no-such-program"}})
    mcp_session.configure({"own": make_hostile("plain")}, own=True)
    assert set(await mcp_session.list_tools(sandbox="modal")) == {"own_go"}
    assert mcp_session.list_codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_FAILED"]
    assert "sandbox" in mcp_session.read_reports()


def test_all_of_this_works_on_the_daemons_own_event_loop_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = McpSessionHarness(tmp_path)
        bench.configure(
            {
                "one": make_hostile("plain"),
                "dies": make_hostile("dies"),
                "deaf": make_hostile("deaf"),
                "long": make_hostile("huge-front"),
            }
        )
        tools = await bench.list_tools()
        assert (await bench.call(tools["one_go"])).text == "fine"
        assert "8 MiB" in (await bench.call(tools["long_go"])).text
        for _ in range(2):
            assert (await bench.call(tools["dies_go"])).text == "the MCP server `dies` ended with exit code 7"
        assert bench.list_codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_RESTARTED", "MCP_SERVER_FAILED"]
        await bench.servers.close()
        assert bench.list_processes() == []

    uvloop.run(scenario())


async def test_a_daemon_that_adopts_orphans_still_learns_how_its_server_ended(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"dies": make_hostile("dies")})
    daemon = [
        sys.executable,
        str(SERVERS / "daemon.py"),
        str(mcp_session.workspace),
        mcp_session.session_id,
        mcp_session.daemon_id,
        "dies_go",
    ]
    ended = await asyncio.to_thread(subprocess.run, daemon, capture_output=True, text=True, timeout=60)
    assert "the MCP server `dies` ended with exit code 7\n" in ended.stdout


async def test_what_a_killed_daemon_left_is_found_by_its_id(mcp_session: McpSessionHarness) -> None:
    """A daemon of its own, killed with its server at work; the server ignores that nobody listens any more."""
    mcp_session.configure({"deaf": make_hostile("deaf")})
    daemon = subprocess.Popen(
        [sys.executable, str(SERVERS / "daemon.py"), str(mcp_session.workspace), mcp_session.session_id, mcp_session.daemon_id],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == "deaf_go\n"
    left = mcp_session.list_processes()
    assert left
    kill_with_watchdog(daemon.pid)
    daemon.wait()
    daemon.stdout.close()
    assert set(left) <= set(mcp_session.list_processes())
    assert mcp.kill_leftovers("0" * 32) == 0
    assert mcp.kill_leftovers(mcp_session.daemon_id) >= 1
    assert mcp_session.list_processes() == []
    assert os.getpid() in proc.list_pids()


async def test_a_problem_of_a_file_is_told_again_only_when_it_was_mended_in_between(mcp_session: McpSessionHarness) -> None:
    mcp_session.configure({"bad": {"type": "sse", "url": "http://127.0.0.1:1/"}})
    await mcp_session.list_tools()
    await mcp_session.list_tools()
    assert mcp_session.list_codes() == ["MCP_CONFIG_INVALID"]

    mcp_session.configure({})
    await mcp_session.list_tools()
    mcp_session.configure({"bad": {"type": "sse", "url": "http://127.0.0.1:1/"}})
    await mcp_session.list_tools()
    assert mcp_session.list_codes() == ["MCP_CONFIG_INVALID"] * 2
