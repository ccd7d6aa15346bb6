"""The page on a phone: nothing sticks out, and a decision is a few taps away."""

from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.web.conftest import OpenWindow
from tests.web.house import House
from tests.web.visiting import PHONE, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "a-word-without-an-end-" * 20


async def test_a_decision_is_reached_and_made_by_taps(
    house: House, daemon: Daemon, open_window: OpenWindow, workspace: Path
) -> None:
    session_id, _ = await house.asked(workspace, "run: echo tapped > tapped.txt", title="To be tapped")
    window = await (await open_window(daemon, size=PHONE)).come_in()
    await window.go_to(session_id)
    await window.page.get_by_role("link", name="All sessions").tap()
    await expect(window.part("waiting-count")).to_be_visible()
    await window.page.get_by_role("link", name="Decisions").tap()
    card = window.part("decision", has_text="To be tapped")
    approve = card.get_by_role("button", name="Approve")
    await approve.scroll_into_view_if_needed()
    await expect(approve).to_be_in_viewport(ratio=1)
    box = await approve.bounding_box()
    assert box is not None
    assert box["height"] >= 32
    await approve.tap()

    await expect(card.get_by_test_id("decided")).to_contain_text("Approved by")
    await house.told(session_id, "run_complete")
    assert (workspace / "tapped.txt").read_text() == "tapped\n"


@pytest.mark.parametrize("size", [PHONE, (320, 568)], ids=["phone", "small"])
async def test_nothing_is_wider_than_the_phone(
    house: House, daemon: Daemon, open_window: OpenWindow, workspace: Path, size: tuple[int, int]
) -> None:
    session_id = await house.agent(workspace, title=f"Long {LONG}")
    await house.send(session_id, f"say: {LONG}\nsay: `{LONG}`\nsay: | a | {LONG} |\nread README.md\nrun: echo {LONG}")
    await house.told(session_id, "approval_required")
    window = await (await open_window(daemon, size=size)).come_in()
    shown = {
        "#/": window.row(session_id),
        "#/inbox": window.part("decision", has_text=LONG).first,
        "#/new": window.part("new-form"),
        "#/hosts": window.part("host-row").first,
        "#/admin/health": window.page.get_by_role("heading", name="Administration"),
        "#/admin/audit": window.page.get_by_role("heading", name="Administration"),
        "#/admin/users": window.button("Add"),
        "#/settings": window.part("logout"),
        f"#/s/{session_id}": window.part("decision"),
        f"#/s/{session_id}/files": window.page.get_by_text("README.md"),
        f"#/s/{session_id}/changes": window.button("Look again"),
    }
    too_wide = []
    for place, there in shown.items():
        await window.go(place)
        await expect(there.first).to_be_visible()
        too_wide += [f"{place}: {element}" for element in await window.scrolls_sideways()]
    assert too_wide == []
