"""Who comes in, how, and how they leave."""

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.web.conftest import OpenWindow
from tests.web.house import ApiUser
from tests.web.visiting import BrowserWindow, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

PASSWORD = "correct horse battery staple"


async def test_the_printed_address_lets_the_owner_in_once_and_leaves_no_token(
    api_user: ApiUser, daemon: ManagedDaemon, open_browser_window: OpenWindow
) -> None:
    printed = api_user.run_tower("token", "url").strip()
    path = printed.removeprefix(daemon.http)
    window = await open_browser_window(daemon)

    await window.open_page(path)
    await expect(window.page.get_by_role("navigation", name="Main")).to_be_visible()
    assert window.page.url.rstrip("/") == daemon.http
    assert "token" not in await window.page.evaluate("() => history.state + location.href + document.cookie")
    [cookie] = await window.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")

    late = await open_browser_window(daemon)
    await late.open_page(path)
    await expect(late.find_part("login")).to_contain_text("used already")
    assert "token" not in late.page.url


async def test_a_name_and_a_password_let_somebody_in_and_no_script_can_read_the_cookie(
    api_user: ApiUser, daemon: ManagedDaemon, open_browser_window: OpenWindow
) -> None:
    name = await api_user.create_user(PASSWORD)
    window = await open_browser_window(daemon)
    await window.open_page()
    await _log_in(window, name, PASSWORD)

    await expect(window.page.get_by_role("navigation", name="Main")).to_contain_text(name)
    cookies = await window.context.cookies()
    assert len(cookies) == 2, "the login, and what makes the device familiar"
    assert all(cookie["httpOnly"] for cookie in cookies)
    kept = await window.page.evaluate("() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)")
    assert all(cookie["value"] not in kept for cookie in cookies)
    await window.page.reload()
    await expect(window.page.get_by_role("navigation", name="Main")).to_contain_text(name)


async def test_a_wrong_password_is_refused_and_forgotten(
    api_user: ApiUser, daemon: ManagedDaemon, open_browser_window: OpenWindow
) -> None:
    name = await api_user.create_user(PASSWORD)
    window = await open_browser_window(daemon)
    await window.open_page()
    await _log_in(window, name, "wrong")

    await expect(window.page.get_by_role("alert")).to_be_visible()
    await expect(window.page.get_by_label("Password")).to_have_value("")
    assert await window.context.cookies() == []
    await _log_in(window, name, PASSWORD)
    await expect(window.page.get_by_role("navigation", name="Main")).to_be_visible()


async def test_who_logs_out_is_out_also_after_a_reload(daemon: ManagedDaemon, open_browser_window: OpenWindow) -> None:
    window = await (await open_browser_window(daemon)).log_in_as_owner("#/settings")
    [cookie] = await window.context.cookies()
    await window.find_part("logout").click()

    await expect(window.find_part("login")).to_be_visible()
    assert await window.context.cookies() == []
    await window.page.reload()
    await expect(window.find_part("login")).to_be_visible()

    # Not only forgotten: whoever has copied it comes no further.
    await window.context.add_cookies([cookie])
    await window.page.reload()
    await expect(window.find_part("login")).to_be_visible()


async def test_a_revoked_login_is_asked_again(api_user: ApiUser, daemon: ManagedDaemon, open_browser_window: OpenWindow) -> None:
    name = await api_user.create_user(PASSWORD)
    window = await open_browser_window(daemon)
    await window.open_page()
    await _log_in(window, name, PASSWORD)
    await expect(window.page.get_by_role("navigation", name="Main")).to_be_visible()

    await api_user.http.request("DELETE", f"/users/{name}")
    await expect(window.find_part("login")).to_be_visible()


async def _log_in(window: BrowserWindow, name: str, password: str) -> None:
    await window.page.get_by_label("Name").fill(name)
    await window.page.get_by_label("Password").fill(password)
    await window.find_button("Log in").click()
