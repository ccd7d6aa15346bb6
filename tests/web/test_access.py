"""For everybody: axe-core finds nothing serious, and the keyboard alone is enough."""

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.web import building
from tests.web.conftest import OpenWindow
from tests.web.house import ApiUser
from tests.web.visiting import DESKTOP, PHONE, BrowserWindow, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERIOUS = ("serious", "critical")


@pytest.fixture
def axe() -> str:
    if not building.AXE.exists():
        pytest.skip("axe-core is not installed: `make web` does it")
    return building.AXE.read_text()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_nothing_serious_is_in_anybodys_way(
    api_user: ApiUser,
    daemon: ManagedDaemon,
    open_browser_window: OpenWindow,
    workspace: Path,
    axe: str,
    dark: bool,
    size: tuple[int, int],
) -> None:
    session_id = await api_user.start_agent(workspace, title="For everybody")
    text = "say: # A heading\nsay: and `code`\nread README.md\nedit README.md: two lines => three lines\nrun: make test"
    await api_user.send(session_id, text)
    await api_user.wait_for_event(session_id, "approval_required")
    window = await open_browser_window(daemon, dark=dark, size=size)
    await window.open_page()
    await expect(window.find_part("login")).to_be_visible()
    found = {"login": await _run_axe(window, axe)}
    await window.log_in_as_owner()
    for place, there in {
        "#/": window.find_row(session_id),
        "#/inbox": window.find_part("decision", has_text="For everybody"),
        f"#/s/{session_id}": window.find_part("decision"),
    }.items():
        await window.navigate(place)
        await expect(there.first).to_be_visible()
        found[place.replace(session_id, "…")] = await _run_axe(window, axe)
    assert [f"{place}: {one}" for place, some in found.items() for one in some] == []


async def _run_axe(window: BrowserWindow, axe: str) -> list[str]:
    # Evaluated by the debugger, so that the policy of the page stays as it is.
    await window.page.evaluate(f"() => {{ if (!window.axe) {{ {axe} }} }}")
    told: dict[str, Any] = await window.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['impact']} {one['id']}: {node['html'][:150]}"
        for one in told["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"][:3]
    ]


async def test_a_decision_is_found_and_made_with_keys_alone(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    session_id, _ = await api_user.start_waiting_session(workspace, "run: echo keyed > keyed.txt")
    keyboard = browser_window.page.keyboard
    await keyboard.press("g")
    await keyboard.press("i")
    card = browser_window.find_part("decision", has_text="echo keyed > keyed.txt")
    await expect(card).to_be_visible()
    for _ in range(await browser_window.find_part("decision").count()):
        await keyboard.press("j")
        if await card.evaluate("card => card === document.activeElement"):
            break
    await expect(card).to_be_focused()
    await keyboard.press("y")
    await expect(card.get_by_test_id("decided")).to_contain_text("Approved")
    await api_user.wait_for_event(session_id, "run_complete")
    assert (workspace / "keyed.txt").read_text() == "keyed\n"
