"""When a server is asked about, started, started again and ended."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop
from tests.tools.mcp.parts import SERVERS, Bench, friendly, hostile
from tests.tools.running.watching import kill_with_watchdog

from switchtower.tools import mcp
from switchtower.tools.running import proc
from switchtower.tools.sandboxes import sandbox


async def test_a_workspaces_server_is_asked_about_and_a_denied_one_is_left_out(bench: Bench) -> None:
    bench.admits = False
    bench.configure({"one": hostile("plain")})
    bench.configure({"own": hostile("plain")}, own=True)
    assert set(await bench.tools()) == {"own_go"}
    assert [server.name for server in bench.asked] == ["one"]
    assert bench.codes() == ["MCP_SERVER_DENIED"]
    assert "`one`" in bench.told()
    # Asked again in the next run, and allowed this time.
    bench.admits = True
    assert set(await bench.tools()) == {"one_go", "own_go"}
    assert len(bench.asked) == 2


async def test_a_changed_entry_is_asked_about_anew_and_the_old_server_ends(bench: Bench) -> None:
    bench.configure({"one": hostile("plain")})
    await bench.tools()
    before = bench.processes()
    bench.configure({"one": hostile("plain", "other")})
    await bench.tools()
    assert len(bench.asked) == 2
    assert bench.asked[0].subject != bench.asked[1].subject
    assert not set(before) & set(bench.processes())
    bench.configure({})
    assert await bench.tools() == {}
    assert bench.processes() == []


async def test_a_server_that_dies_in_a_call_is_reported_and_back_for_the_next_one(bench: Bench) -> None:
    bench.configure({"friend": friendly()})
    tools = await bench.tools()
    output = await bench.call(tools["friend_leave"], code=7)
    assert output.is_error
    assert output.text == "the MCP server `friend` ended with exit code 7"
    assert output.error is not None
    assert output.error.retryable
    assert bench.codes() == ["MCP_SERVER_FAILED"]
    assert (await bench.call(tools["friend_add"], a=1, b=2)).text == "3"
    assert bench.codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_RESTARTED"]
    assert len(bench.asked) == 1


async def test_all_calls_under_way_are_answered_when_the_server_dies_and_it_is_reported_once(
    bench: Bench, tmp_path: Path
) -> None:
    bench.configure({"friend": friendly()})
    tools = await bench.tools()
    waiting = [
        asyncio.create_task(bench.call(tools["friend_wait"], file=str(tmp_path / f"witness{number}"))) for number in range(3)
    ]
    async with asyncio.timeout(60):
        while not all((tmp_path / f"witness{number}").exists() for number in range(3)):
            await asyncio.sleep(0.01)
        await bench.call(tools["friend_leave"], code=1)
        outputs = await asyncio.gather(*waiting)
    assert all(output.is_error and "ended with exit code 1" in output.text for output in outputs)
    assert bench.codes() == ["MCP_SERVER_FAILED"]


async def test_what_a_dying_server_wrote_is_quoted_to_people(bench: Bench) -> None:
    bench.configure({"one": hostile("dies")})
    output = await bench.call((await bench.tools())["one_go"])
    assert output.text == "the MCP server `one` ended with exit code 7"
    assert "I am out of here" in bench.told()


async def test_a_server_that_keeps_dying_stays_down_until_the_next_run(bench: Bench) -> None:
    bench.configure({"one": hostile("dies")})
    tools = await bench.tools()
    outputs = [await bench.call(tools["one_go"]) for _ in range(5)]
    assert all(output.is_error for output in outputs)
    assert bench.codes().count("MCP_SERVER_RESTARTED") == 3
    assert "now stays down" in outputs[4].text
    assert bench.processes() == []
    assert "one_go" in await bench.tools()
    assert len(bench.asked) == 1


async def test_a_server_that_was_killed_between_runs_is_started_again(bench: Bench) -> None:
    bench.configure({"one": hostile("plain")})
    await bench.tools()
    (pid,) = bench.processes()
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert proc.wait_for_end([pidfd], 10)
    os.close(pidfd)
    tools = await bench.tools()
    assert (await bench.call(tools["one_go"])).text == "fine"
    assert bench.codes() == ["MCP_SERVER_RESTARTED"]
    assert "SIGKILL" in bench.told()


async def test_a_server_that_leaves_at_first_is_tried_again(bench: Bench, tmp_path: Path) -> None:
    bench.configure({"one": hostile("leaves-twice", str(tmp_path / "starts"))})
    tools = await bench.tools()
    assert (await bench.call(tools["one_go"])).text == "fine"
    assert (tmp_path / "starts").read_text() == "xxx"
    assert bench.reports == []


async def test_a_server_that_never_starts_is_reported_and_the_others_serve(bench: Bench) -> None:
    bench.variables |= {"TOKEN": "t0ken-0f-the-user", "LONG": "x" * 60_000}
    bench.configure(
        {
            "gone": {"command": "no-such-program-anywhere"},
            "lost": hostile("plain", cwd="no/such/folder"),
            "long": hostile("plain", *["${LONG}"] * 60),
            "leaves": hostile("leaves", env={"TOKEN": "${TOKEN}"}),
            "good": hostile("plain"),
        }
    )
    assert set(await bench.tools()) == {"good_go"}
    told = dict(zip([message.split("`")[1] for _, message in bench.reports], bench.reports, strict=True))
    assert "`no-such-program-anywhere` was not found; hint: install it" in told["gone"][1]
    assert "its folder does not exist" in told["lost"][1]
    assert "could not be started: Argument list too long" in told["long"][1]
    assert "ended with exit code 3" in told["leaves"][1]
    assert "cannot go on" in told["leaves"][1]
    assert "t0ken-0f-the-user" not in bench.told()
    assert set(bench.codes()) == {"MCP_SERVER_FAILED"}
    assert "t0ken-0f-the-user" in bench.learnt


async def test_a_server_that_is_not_ready_in_time_is_ended(bench: Bench) -> None:
    bench.manager(start_s=0.5)
    bench.configure({"silent": hostile("silent"), "rubbish": hostile("rubbish")})
    assert await bench.tools() == {}
    assert bench.codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_FAILED"]
    assert "was not ready in time" in bench.told()
    assert bench.processes() == []


async def test_an_older_server_that_leaves_at_an_unknown_word_is_greeted_as_it_expects(bench: Bench) -> None:
    bench.configure({"old": hostile("strict")})
    tools = await bench.tools()
    assert (await bench.call(tools["old_go"])).text == "fine"
    assert bench.reports == []


async def test_an_idle_server_is_stopped_and_comes_back_when_it_is_called(bench: Bench) -> None:
    bench.manager(idle_s=0.05)
    bench.configure({"one": hostile("plain")})
    tools = await bench.tools()
    async with asyncio.timeout(60):
        while bench.processes():
            await asyncio.sleep(0.01)
    assert (await bench.call(tools["one_go"])).text == "fine"
    assert bench.reports == []


async def test_a_call_that_takes_longer_than_the_idle_time_is_not_cut_short(bench: Bench) -> None:
    bench.manager(idle_s=0.05, call_s=0.5)
    bench.configure({"one": hostile("mute")})
    output = await bench.call((await bench.tools())["one_go"])
    assert "did not answer within 0.5 s" in output.text


async def test_a_cancelled_start_leaves_nothing(bench: Bench) -> None:
    bench.configure({"silent": hostile("silent"), "other": hostile("silent")})
    starting = asyncio.create_task(bench.tools())
    async with asyncio.timeout(60):
        while len(bench.processes()) < 2:
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert bench.processes() == []


async def test_a_session_that_ends_during_a_start_ends_the_start(bench: Bench) -> None:
    bench.configure({"silent": hostile("silent")})
    starting = asyncio.create_task(bench.tools())
    async with asyncio.timeout(60):
        while not bench.processes():
            await asyncio.sleep(0.01)
        await bench.servers.end_session(bench.session_id)
        assert await starting == {}
    assert bench.processes() == []


async def test_a_yes_that_comes_after_the_sessions_end_starts_nothing(bench: Bench) -> None:
    asked, decided = asyncio.Event(), asyncio.Event()

    async def admit(server: mcp.ServerConfig) -> bool:
        asked.set()
        await decided.wait()
        return True

    async def report(code: str, message: str) -> None:
        raise AssertionError(code)

    bench.configure({"one": hostile("plain")})
    asking = asyncio.create_task(
        bench.servers.tools_for(bench.session_id, str(bench.workspace), sandbox="local", admit=admit, report=report)
    )
    async with asyncio.timeout(60):
        await asked.wait()
        await bench.servers.end_session(bench.session_id)
        decided.set()
        assert await asking == ()
    assert bench.processes() == []


async def test_a_closed_manager_starts_nothing(bench: Bench) -> None:
    bench.configure({"one": hostile("plain")})
    tools = await bench.tools()
    await bench.servers.close()
    assert bench.processes() == []
    assert await bench.tools() == {}
    assert (await bench.call(tools["one_go"])).is_error
    assert bench.processes() == []


async def test_a_refusal_to_ask_reaches_the_caller_and_leaves_nothing(bench: Bench) -> None:
    class Stop(Exception):
        pass

    async def admit(server: mcp.ServerConfig) -> bool:
        if server.name == "second":
            async with asyncio.timeout(60):
                while not bench.processes():
                    await asyncio.sleep(0.01)
            raise Stop
        return True

    async def report(code: str, message: str) -> None:
        raise AssertionError(code)

    bench.configure({"first": hostile("silent"), "second": hostile("silent")})
    with pytest.raises(Stop):
        await bench.servers.tools_for(bench.session_id, str(bench.workspace), sandbox="local", admit=admit, report=report)
    assert bench.processes() == []


async def test_a_workspaces_server_runs_in_the_sessions_sandbox_and_the_users_own_does_not(bench: Bench, tmp_path: Path) -> None:
    if (trouble := sandbox.probe("bubblewrap")) is not None:
        pytest.skip(trouble)
    if Path(sys.executable).is_relative_to("/tmp"):
        pytest.skip("this Python lies below /tmp, which is another folder in a sandbox")
    outside = tmp_path / "outside"
    bench.configure({"theirs": hostile("writes", str(outside)), "inside": hostile("writes", str(bench.workspace / "file"))})
    bench.configure({"own": hostile("writes", str(tmp_path / "own"))}, own=True)
    tools = await bench.tools(sandbox="bubblewrap")
    await bench.call(tools["theirs_go"])
    assert not outside.exists()
    assert (await bench.call(tools["inside_go"])).text == "fine"
    assert (bench.workspace / "file").read_text() == "written"
    assert (await bench.call(tools["own_go"])).text == "fine"
    assert (tmp_path / "own").read_text() == "written"


async def test_without_its_sandbox_a_workspaces_server_does_not_start(bench: Bench) -> None:
    bench.configure({"theirs": hostile("plain"), "gone": {"command": "no-such-program"}})
    bench.configure({"own": hostile("plain")}, own=True)
    assert set(await bench.tools(sandbox="modal")) == {"own_go"}
    assert bench.codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_FAILED"]
    assert "sandbox" in bench.told()


def test_all_of_this_works_on_the_daemons_own_event_loop_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        bench.configure(
            {"one": hostile("plain"), "dies": hostile("dies"), "deaf": hostile("deaf"), "long": hostile("huge-front")}
        )
        tools = await bench.tools()
        assert (await bench.call(tools["one_go"])).text == "fine"
        assert "8 MiB" in (await bench.call(tools["long_go"])).text
        for _ in range(2):
            assert (await bench.call(tools["dies_go"])).text == "the MCP server `dies` ended with exit code 7"
        assert bench.codes() == ["MCP_SERVER_FAILED", "MCP_SERVER_RESTARTED", "MCP_SERVER_FAILED"]
        await bench.servers.close()
        assert bench.processes() == []

    uvloop.run(scenario())


async def test_a_daemon_that_adopts_orphans_still_learns_how_its_server_ended(bench: Bench) -> None:
    bench.configure({"dies": hostile("dies")})
    daemon = [sys.executable, str(SERVERS / "daemon.py"), str(bench.workspace), bench.session_id, bench.daemon_id, "dies_go"]
    ended = await asyncio.to_thread(subprocess.run, daemon, capture_output=True, text=True, timeout=60)
    assert "the MCP server `dies` ended with exit code 7\n" in ended.stdout


async def test_what_a_killed_daemon_left_is_found_by_its_id(bench: Bench) -> None:
    """A daemon of its own, killed with its server at work; the server ignores that nobody listens any more."""
    bench.configure({"deaf": hostile("deaf")})
    daemon = subprocess.Popen(
        [sys.executable, str(SERVERS / "daemon.py"), str(bench.workspace), bench.session_id, bench.daemon_id],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == "deaf_go\n"
    left = bench.processes()
    assert left
    kill_with_watchdog(daemon.pid)
    daemon.wait()
    daemon.stdout.close()
    assert set(left) <= set(bench.processes())
    assert mcp.kill_leftovers("0" * 32) == 0
    assert mcp.kill_leftovers(bench.daemon_id) >= 1
    assert bench.processes() == []
    assert os.getpid() in proc.all_pids()


async def test_a_problem_of_a_file_is_told_again_only_when_it_was_mended_in_between(bench: Bench) -> None:
    bench.configure({"bad": {"type": "sse", "url": "http://127.0.0.1:1/"}})
    await bench.tools()
    await bench.tools()
    assert bench.codes() == ["MCP_CONFIG_INVALID"]

    bench.configure({})
    await bench.tools()
    bench.configure({"bad": {"type": "sse", "url": "http://127.0.0.1:1/"}})
    await bench.tools()
    assert bench.codes() == ["MCP_CONFIG_INVALID"] * 2
