"""An agent's conversation: begun, watched, decided in, by one and by several."""

from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon
from tests.web.conftest import OpenWindow
from tests.web.house import ApiUser
from tests.web.visiting import BrowserWindow, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

_NOTE_GROWTH = """
window.__lengths = [];
new MutationObserver(() => {
  const said = document.querySelector("[data-testid=assistant-message]");
  if (said) window.__lengths.push(said.textContent.length);
}).observe(document, { subtree: true, childList: true, characterData: true });
"""


async def test_a_session_begun_on_the_page_is_seen_to_stream(
    page_folder: Path, start_daemon: StartDaemon, open_browser_window: OpenWindow, workspace: Path
) -> None:
    slow = start_daemon(web_dir=page_folder, demo_delay_ms=15)
    window = await open_browser_window(slow)
    await window.context.add_init_script(_NOTE_GROWTH)
    await window.log_in_as_owner("#/new")
    await window.page.get_by_label("Workspace", exact=True).fill(str(workspace))
    await window.page.get_by_label("First message").fill("count 40")
    await window.find_part("start").click()

    await expect(window.find_part("user-message")).to_have_text("count 40")
    numbers = " ".join(map(str, range(1, 41)))
    await expect(window.find_part("assistant-message")).to_have_text(numbers)
    lengths = await window.page.evaluate("() => window.__lengths")
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 5, "it came word by word"
    await expect(window.find_part("send")).to_be_attached()


async def test_a_second_message_goes_into_the_same_conversation(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    session_id = await api_user.start_agent(workspace)
    await browser_window.open_run(session_id)
    await browser_window.send_text("say: the first answer")
    await browser_window.wait_for_text("the first answer")
    await browser_window.send_text("read README.md")

    await expect(browser_window.find_part("tool-card")).to_have_attribute("data-state", "done")
    await browser_window.find_part("tool-card").get_by_role("button").first.click()
    await expect(browser_window.find_part("tool-result")).to_contain_text("with two lines")
    await expect(browser_window.find_part("user-message")).to_have_text(["say: the first answer", "read README.md"])


async def test_what_one_browser_approves_the_other_sees_with_the_name_of_who_did(
    api_user: ApiUser, daemon: ManagedDaemon, browser_window: BrowserWindow, open_browser_window: OpenWindow, workspace: Path
) -> None:
    name = await api_user.create_user("a password of hers")
    session_id, asked = await api_user.start_waiting_session(workspace, "run: echo done > made.txt", title="Makes a file")
    await browser_window.open_run(session_id)
    await expect(browser_window.find_part("decision-command")).to_have_text("echo done > made.txt")
    assert not (workspace / "made.txt").exists()

    other = await open_browser_window(daemon)
    await other.open_page("/#/inbox")
    await other.page.get_by_label("Name").fill(name)
    await other.page.get_by_label("Password").fill("a password of hers")
    await other.find_button("Log in").click()
    card = other.find_part("decision", has_text="made.txt").filter(has_text="Makes a file")
    await card.get_by_role("button", name="Approve").click()
    await expect(card.get_by_test_id("decided")).to_contain_text(f"Approved by {name}")

    await expect(browser_window.find_part("tool-card")).to_have_attribute("data-state", "done")
    await expect(browser_window.find_part("decision")).to_have_count(0)
    await browser_window.find_part("tool-card").get_by_role("button").first.click()
    await expect(browser_window.find_part("call-decided")).to_contain_text(f"Approved by {name}")
    assert (workspace / "made.txt").read_text() == "done\n"
    assert asked.payload["approvalId"]


async def test_what_is_denied_by_a_key_does_not_happen(api_user: ApiUser, browser_window: BrowserWindow, workspace: Path) -> None:
    session_id, _ = await api_user.start_waiting_session(workspace, "run: echo done > made.txt")
    await browser_window.open_run(session_id)
    card = browser_window.find_part("decision")
    await card.focus()
    await card.press("n")

    await expect(browser_window.find_part("call-decided")).to_contain_text("Denied by")
    await expect(browser_window.find_part("tool-card")).to_have_attribute("data-state", "failed")
    await api_user.wait_for_event(session_id, "run_complete")
    assert not (workspace / "made.txt").exists()


async def test_a_key_pressed_in_the_message_field_decides_nothing(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    session_id, _ = await api_user.start_waiting_session(workspace, "run: echo done > made.txt")
    await browser_window.open_run(session_id)
    await expect(browser_window.find_part("decision")).to_be_visible()
    await browser_window.find_part("composer").press_sequentially("yes any day")

    await expect(browser_window.find_part("composer")).to_have_value("yes any day")
    await expect(browser_window.find_part("decision").get_by_role("button", name="Approve")).to_be_enabled()
    assert (await api_user.http.get_run(session_id))["status"] == "awaiting_approval"


async def test_deny_and_stop_ends_the_run_and_the_list_says_so(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    session_id, _ = await api_user.start_waiting_session(
        workspace, "run: echo done > made.txt\nsay: and on it went", title="To be stopped"
    )
    await expect(browser_window.find_row(session_id)).to_contain_text("needs a decision")
    await browser_window.open_run(session_id)
    await browser_window.find_part("decision").get_by_role("button", name="Deny and stop").click()

    await expect(browser_window.find_part("decision")).to_have_count(0)
    await browser_window.navigate("#/")
    await expect(browser_window.find_row(session_id)).to_contain_text("ready")
    assert not (workspace / "made.txt").exists()


async def test_a_running_session_is_stopped_from_the_page(
    page_folder: Path, start_daemon: StartDaemon, open_browser_window: OpenWindow, workspace: Path
) -> None:
    slow = start_daemon(web_dir=page_folder, demo_delay_ms=15)
    async with ApiUser(slow) as house:
        window = await (await open_browser_window(slow)).log_in_as_owner()
        session_id = await house.start_agent(workspace)
        await house.send(session_id, "count 5000")
        await window.open_run(session_id)
        await window.wait_for_text("1 2 3")
        await window.find_part("abort").click()
        await house.wait_for_event(session_id, "run_complete")
        await expect(window.find_part("send")).to_be_attached()
