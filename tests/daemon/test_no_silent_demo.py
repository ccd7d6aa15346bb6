"""In every protocol: a session that names no model, where none is configured, is refused; the demo serves where it is named."""

from tests.daemon.minicodex_stage import connect_minicodex
from tests.daemon.pi_stage import PiHarness

from switchtower.testing.push_client import make_start_payload

CODE = "PROVIDER_NOT_CONFIGURED"


async def test_push_refuses_unless_an_interactive_client_allows_the_demo(pi_harness: PiHarness) -> None:
    await pi_harness.open(provider="auto")
    push = await pi_harness.push()

    async def start(**fields: object) -> str | None:
        return (await push.request("start_session", make_start_payload(pi_harness.workspace, **fields))).code

    assert await start(provider="auto") == CODE
    assert await start(provider="auto", mode="headless", allowDemo=True) == CODE
    assert await start(provider="auto", model="gpt-5", allowDemo=True) == CODE
    assert await start(provider="anthropic", allowDemo=True) == CODE
    assert await start(provider="auto", allowDemo="yes") == "INVALID_REQUEST"
    assert await start(provider="auto", allowDemo=True) is None
    assert await start(provider="demo", mode="headless") is None


async def test_pi_refuses(pi_harness: PiHarness) -> None:
    await pi_harness.open(provider="auto")
    client = await pi_harness.connect()

    answer = await client.request("create_session", cwd=str(pi_harness.workspace))

    assert answer["success"] is False
    assert "no key and no model server was found" in answer["error"]


async def test_minicodex_refuses_and_takes_the_demo_by_its_name(pi_harness: PiHarness) -> None:
    await pi_harness.open(provider="auto")

    refused = await connect_minicodex(pi_harness)
    named = await connect_minicodex(pi_harness, provider="demo")

    assert await refused.expect_error("hello", v="1.0.0", client_capabilities=[]) == "UNAVAILABLE"
    await named.send_hello()
