"""For everybody: axe-core finds nothing serious, and the keyboard alone is enough."""

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import Daemon
from tests.web import building
from tests.web.conftest import OpenWindow
from tests.web.house import House
from tests.web.visiting import DESKTOP, PHONE, Window, expect

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
    house: House, daemon: Daemon, open_window: OpenWindow, workspace: Path, axe: str, dark: bool, size: tuple[int, int]
) -> None:
    session_id = await house.agent(workspace, title="For everybody")
    text = "say: # A heading\nsay: and `code`\nread README.md\nedit README.md: two lines => three lines\nrun: make test"
    await house.send(session_id, text)
    await house.told(session_id, "approval_required")
    window = await open_window(daemon, dark=dark, size=size)
    await window.knock()
    await expect(window.part("login")).to_be_visible()
    found = {"login": await _found(window, axe)}
    await window.come_in()
    for place, there in {
        "#/": window.row(session_id),
        "#/inbox": window.part("decision", has_text="For everybody"),
        f"#/s/{session_id}": window.part("decision"),
    }.items():
        await window.go(place)
        await expect(there.first).to_be_visible()
        found[place.replace(session_id, "…")] = await _found(window, axe)
    assert [f"{place}: {one}" for place, some in found.items() for one in some] == []


async def _found(window: Window, axe: str) -> list[str]:
    # Evaluated by the debugger, so that the policy of the page stays as it is.
    await window.page.evaluate(f"() => {{ if (!window.axe) {{ {axe} }} }}")
    told: dict[str, Any] = await window.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['impact']} {one['id']}: {node['html'][:150]}"
        for one in told["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"][:3]
    ]


async def test_a_decision_is_found_and_made_with_keys_alone(house: House, window: Window, workspace: Path) -> None:
    session_id, _ = await house.asked(workspace, "run: echo keyed > keyed.txt")
    keyboard = window.page.keyboard
    await keyboard.press("g")
    await keyboard.press("i")
    card = window.part("decision", has_text="echo keyed > keyed.txt")
    await expect(card).to_be_visible()
    for _ in range(await window.part("decision").count()):
        await keyboard.press("j")
        if await card.evaluate("card => card === document.activeElement"):
            break
    await expect(card).to_be_focused()
    await keyboard.press("y")
    await expect(card.get_by_test_id("decided")).to_contain_text("Approved")
    await house.told(session_id, "run_complete")
    assert (workspace / "keyed.txt").read_text() == "keyed\n"
