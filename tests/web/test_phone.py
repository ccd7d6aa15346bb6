"""The page on a phone: nothing sticks out, and a decision is a few taps away."""

from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.web.conftest import OpenWindow
from tests.web.house import ApiUser
from tests.web.visiting import PHONE, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "a-word-without-an-end-" * 20


async def test_a_decision_is_reached_and_made_by_taps(
    api_user: ApiUser, daemon: ManagedDaemon, open_browser_window: OpenWindow, workspace: Path
) -> None:
    session_id, _ = await api_user.start_waiting_session(workspace, "run: echo tapped > tapped.txt", title="To be tapped")
    window = await (await open_browser_window(daemon, size=PHONE)).log_in_as_owner()
    await window.open_run(session_id)
    await window.page.get_by_role("link", name="All sessions").tap()
    await expect(window.find_part("waiting-count")).to_be_visible()
    await window.page.get_by_role("link", name="Decisions").tap()
    card = window.find_part("decision", has_text="To be tapped")
    approve = card.get_by_role("button", name="Approve")
    await approve.scroll_into_view_if_needed()
    await expect(approve).to_be_in_viewport(ratio=1)
    box = await approve.bounding_box()
    assert box is not None
    assert box["height"] >= 32
    await approve.tap()

    await expect(card.get_by_test_id("decided")).to_contain_text("Approved by")
    await api_user.wait_for_event(session_id, "run_complete")
    assert (workspace / "tapped.txt").read_text() == "tapped\n"


@pytest.mark.parametrize("size", [PHONE, (320, 568)], ids=["phone", "small"])
async def test_nothing_is_wider_than_the_phone(
    api_user: ApiUser, daemon: ManagedDaemon, open_browser_window: OpenWindow, workspace: Path, size: tuple[int, int]
) -> None:
    session_id = await api_user.start_agent(workspace, title=f"Long {LONG}")
    await api_user.send(session_id, f"say: {LONG}\nsay: `{LONG}`\nsay: | a | {LONG} |\nread README.md\nrun: echo {LONG}")
    await api_user.wait_for_event(session_id, "approval_required")
    window = await (await open_browser_window(daemon, size=size)).log_in_as_owner()
    shown = {
        "#/": window.find_row(session_id),
        "#/inbox": window.find_part("decision", has_text=LONG).first,
        "#/new": window.find_part("new-form"),
        "#/hosts": window.find_part("host-row").first,
        "#/admin/health": window.page.get_by_role("heading", name="Administration"),
        "#/admin/audit": window.page.get_by_role("heading", name="Administration"),
        "#/admin/users": window.find_button("Add"),
        "#/settings": window.find_part("logout"),
        f"#/s/{session_id}": window.find_part("decision"),
        f"#/s/{session_id}/files": window.page.get_by_text("README.md"),
        f"#/s/{session_id}/changes": window.find_button("Look again"),
    }
    too_wide = []
    for place, there in shown.items():
        await window.navigate(place)
        await expect(there.first).to_be_visible()
        too_wide += [f"{place}: {element}" for element in await window.find_horizontal_overflow()]
    assert too_wide == []
