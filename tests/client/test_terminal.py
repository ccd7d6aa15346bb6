"""Programs in terminals, by the client library: keys are pressed once, texts arrive once, and older daemons are told apart."""

import asyncio
from typing import Any

import pytest
from tests.client.conftest import ScriptedConnection, ScriptedPushServer

from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.protocols.push import extension_messages, messages

SESSION = "sess_A"


async def serve_answers(daemon: ScriptedPushServer, *answers: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Each connection answers one request; None loses it instead. Returns what was asked, as it comes."""
    seen: list[dict[str, Any]] = []

    def script(answer: dict[str, Any] | None) -> Any:
        async def one(wire: ScriptedConnection) -> None:
            await wire.send_greeting(*extension_messages.CAPABILITIES)
            seen.append(request := await wire.request())
            if answer is not None:
                await wire.answer(request, answer)
                await wire.wait_closed()

        return one

    await daemon.serve(*(script(answer) for answer in answers))
    return seen


async def test_keys_and_sizes_are_sent_as_they_are(daemon: ScriptedPushServer) -> None:
    async def answers(wire: ScriptedConnection) -> None:
        await wire.send_greeting(*extension_messages.CAPABILITIES)
        for expected in (
            ("terminal_input", {"text": "\x03ü", "sessionId": SESSION}),
            ("terminal_resize", {"cols": 80, "rows": 24, "sessionId": SESSION}),
        ):
            request = await wire.request()
            assert (request["type"], request["payload"]) == expected
            await wire.answer(request, {"accepted": True})
        await wire.wait_closed()

    await daemon.serve(answers)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        await client.type_keys(SESSION, "\x03ü")
        await client.resize_terminal(SESSION, 80, 24)


async def test_a_text_is_asked_for_again_with_the_same_id_when_the_connection_is_lost(daemon: ScriptedPushServer) -> None:
    seen = await serve_answers(daemon, None, {"accepted": True})
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        await client.type_text(SESSION, "y\r")

    first, second = (request["payload"] for request in seen)
    assert first == second
    assert first["inputId"].startswith("in_")


async def test_keys_are_not_pressed_again_when_the_connection_is_lost(daemon: ScriptedPushServer) -> None:
    seen = await serve_answers(daemon, None, {"accepted": True})
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        with pytest.raises(errors.ConnectionLost):
            await client.type_keys(SESSION, "y")
        await client.type_keys(SESSION, "z")

    assert [request["payload"]["text"] for request in seen] == ["y", "z"]


async def test_a_program_is_killed_only_on_request(daemon: ScriptedPushServer) -> None:
    async def answers(wire: ScriptedConnection) -> None:
        await wire.send_greeting(*extension_messages.CAPABILITIES)
        for force in (None, True):
            request = await wire.request()
            assert request["payload"].get("force") is force
            await wire.answer(request, {"accepted": True})
        await wire.wait_closed()

    await daemon.serve(answers)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        await client.cancel_run(SESSION)
        await client.cancel_run(SESSION, force=True)


async def test_programs_are_listed(daemon: ScriptedPushServer) -> None:
    listing = {"sessionId": SESSION, "tool": "less", "title": "less x", "waitsFor": None, "exitCode": 0, "host": None}
    seen = await serve_answers(daemon, {"terminals": [{**listing, "mood": "fine"}]})
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        (only,) = await client.list_terminals(5)

    assert (only.sessionId, only.tool, only.exitCode) == (SESSION, "less", 0)
    assert seen[0]["payload"] == {"limit": 5}


async def test_an_older_daemon_has_no_programs_and_is_asked_for_none(daemon: ScriptedPushServer) -> None:
    async def answers(wire: ScriptedConnection) -> None:
        await wire.send_greeting("configure")
        assert await wire.reader.read() == b""

    await daemon.serve(answers)
    wanted = messages.StartSession(
        "headless", "terminal", messages.Repo("/w", "", ""), "local", engine="pty", command=["true"], cols=80, rows=24
    )
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        assert await client.list_terminals() == []
        with pytest.raises(errors.DaemonTooOld, match="programs in terminals"):
            await client.start_session(wanted)
        with pytest.raises(errors.DaemonTooOld, match="killing programs"):
            await client.cancel_run(SESSION, force=True)
