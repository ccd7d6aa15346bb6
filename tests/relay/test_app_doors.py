"""Who may be an app at a real hub, for how long, and how much it may ask at once."""

import pytest
from tests.relay.seen import PASSWORD, create_user
from tests.relay.stage import TIMEOUT, RelayNetwork

from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.relay_client import RelayApp, RelayHttp, open_websocket
from switchtower.testing.wire import UpgradeRefused


async def is_accepted(url: str, path: str, token: str | None, headers: dict[str, str] | None = None) -> int:
    try:
        wire = await open_websocket(url, path, {} if token is None else {"token": token}, headers)
    except UpgradeRefused as refusal:
        return refusal.status
    wire.abort()
    return 101


async def test_a_users_token_opens_every_door_until_the_user_logs_out(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    token = await create_user(shared_relay_network.hub, f"ann{unique_name}")
    url = shared_relay_network.hub.url
    for path in ("/ws/app", "/ws/push", "/ws/minicodex"):
        assert await is_accepted(url, path, token) == 101, path
        assert await is_accepted(url, path, None) == 401, path
        assert await is_accepted(url, path, token + "x") == 401, path
    async with await PushClient.connect_websocket(url, token) as push, await MiniCodexClient.open(url, token) as minicodex:
        await push.send_hello()
        await minicodex.send_hello()
    http = RelayHttp(url, token)
    assert (await http.get("/auth/me"))["name"] == f"ann{unique_name}"
    assert (await http.request("POST", "/auth/logout")).status == 204
    for path in ("/ws/app", "/ws/push", "/ws/minicodex"):
        assert await is_accepted(url, path, token) == 401, path
    assert (await http.request("GET", "/runs")).status == 401


async def test_removing_a_user_or_a_token_closes_the_door(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    name = f"bob{unique_name}"
    first, hub = await create_user(shared_relay_network.hub, name), shared_relay_network.hub
    second = str((await hub.http.login(name, PASSWORD)).json["access_token"])
    token_id = (await RelayHttp(hub.url, first).get("/auth/me"))["token_id"]
    assert (await hub.http.request("DELETE", f"/tokens/{token_id}")).status == 204
    assert await is_accepted(hub.url, "/ws/app", first) == 401
    assert await is_accepted(hub.url, "/ws/app", second) == 101
    assert (await hub.http.request("DELETE", f"/users/{name}")).status == 204
    assert await is_accepted(hub.url, "/ws/app", second) == 401
    assert (await hub.http.login(name, PASSWORD)).status == 401


async def test_users_tokens_outlive_the_hub(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub()
    kept, revoked = await create_user(hub, "ann"), await create_user(hub, "bob")
    assert (await RelayHttp(hub.url, revoked).request("POST", "/auth/logout")).status == 204
    await hub.restart()
    assert await is_accepted(hub.url, "/ws/app", kept) == 101
    assert await is_accepted(hub.url, "/ws/app", revoked) == 401


async def test_pages_of_another_site_stay_outside(shared_relay_network: RelayNetwork) -> None:
    url, token = shared_relay_network.hub.url, shared_relay_network.hub.token
    for path in ("/ws/app", "/ws/push", "/ws/minicodex"):
        assert await is_accepted(url, path, token, {"Origin": "https://evil.example"}) == 403, path
        assert await is_accepted(url, path, token, {"Origin": "null"}) == 403, path
        assert await is_accepted(url, path, token, {"Origin": url}) == 101, path
        assert await is_accepted(url, path, token, {"Host": "evil.example"}) == 403, path
    evil = await shared_relay_network.hub.http.request("GET", "/runs", headers={"Origin": "https://evil.example"})
    assert evil.status == 403
    assert "access-control-allow-origin" not in evil.headers


async def test_no_token_and_no_password_is_ever_in_a_log(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub()
    host = await relay_network.start_host("a")
    await relay_network.wait_online(host.host_id)
    token = await create_user(hub, "ann")
    secrets = [token, hub.token, host.token, PASSWORD, "wrong-token-0123456789", "wrong password 1234", "typed-secret-9876"]
    identity = (host.home / "data" / "host.json").read_text()
    secrets.append(identity.partition('"host_token":"')[2].partition('"')[0])
    assert len(secrets[-1]) > 20
    for path in ("/ws/app", "/ws/push", "/ws/minicodex", "/ws/host", "/nowhere", "/runs"):
        for secret in (token, "wrong-token-0123456789"):
            await is_accepted(hub.url, path, secret)
            await hub.http.request("GET", f"{path}?token={secret}&host_token={secret}")
    assert (await hub.http.login("ann", "wrong password 1234")).status == 401
    with pytest.raises(UpgradeRefused):
        await relay_network.connect_host(host.host_id, "wrong-token-0123456789")
    app = await RelayApp.open(hub.url, token)
    async with app:
        run = await app.start(host.host_id, "read -s password; echo done", cwd=str(host.workspace))
        await app.next_of_type("run.ready", run)
        await app.send_command("run.send_input", run, input_id="secret-input", text="typed-secret-9876\n")
        await app.next_of_type("run.exited", run)
    assert await host.stop() == 0
    assert await hub.stop() == 0
    for tower in (hub, host):
        logs = tower.read_logs()
        assert logs
        for secret in secrets:
            assert secret not in logs, tower.name


async def test_too_much_waiting_is_refused_and_the_app_goes_on(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, host = await shared_relay_network.connect_app(timeout=TIMEOUT), await shared_relay_network.connect_host(unique_name)
    run = f"run_{unique_name}"
    await host.send_frames(host.make_started(run))
    await app.next_of_type("run.started", run)
    for number in range(200):
        await app.send_command("rpc.fs.read", run, request_id=f"r{number}-{unique_name}", path="a")
    answers = [await app.wait_for_answer(f"r{number}-{unique_name}") for number in range(64, 200)]
    assert {answer["error"] for answer in answers} == {"too many calls at once"}
    for _ in range(64):
        await host.respond(await host.next_of_type("rpc.fs.read", run), result={})
    assert all([(await app.wait_for_answer(f"r{number}-{unique_name}"))["ok"] for number in range(64)])
