"""In every protocol: a session that names no model, where none is configured, is refused; the demo serves where it is named."""

from tests.daemon.minicodex_stage import mini_client
from tests.daemon.pi_stage import Stage

from switchtower.testing.push_client import start_payload

CODE = "PROVIDER_NOT_CONFIGURED"


async def test_push_refuses_unless_an_interactive_client_allows_the_demo(stage: Stage) -> None:
    await stage.open(provider="auto")
    push = await stage.push()

    async def start(**fields: object) -> str | None:
        return (await push.request("start_session", start_payload(stage.workspace, **fields))).code

    assert await start(provider="auto") == CODE
    assert await start(provider="auto", mode="headless", allowDemo=True) == CODE
    assert await start(provider="auto", model="gpt-5", allowDemo=True) == CODE
    assert await start(provider="anthropic", allowDemo=True) == CODE
    assert await start(provider="auto", allowDemo="yes") == "INVALID_REQUEST"
    assert await start(provider="auto", allowDemo=True) is None
    assert await start(provider="demo", mode="headless") is None


async def test_pi_refuses(stage: Stage) -> None:
    await stage.open(provider="auto")
    client = await stage.pi()

    answer = await client.ask("create_session", cwd=str(stage.workspace))

    assert answer["success"] is False
    assert "no key and no model server was found" in answer["error"]


async def test_minicodex_refuses_and_takes_the_demo_by_its_name(stage: Stage) -> None:
    await stage.open(provider="auto")

    refused = await mini_client(stage)
    named = await mini_client(stage, provider="demo")

    assert await refused.refused("hello", v="1.0.0", client_capabilities=[]) == "UNAVAILABLE"
    await named.hello()
