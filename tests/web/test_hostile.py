"""Text that would like to be more than text, in every place that shows some: all of it is seen, and none of it runs."""

from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.flows import flowing
from tests.relay.stage import DaemonView, RelayNetwork
from tests.web.conftest import OpenWindow
from tests.web.house import ApiUser, make_repository
from tests.web.visiting import Browser, BrowserWindow, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

IMAGE = "<img src=x onerror=window.__xss=1>"
ALL = (
    f"{IMAGE}<script>window.__xss=2</script><svg onload=window.__xss=3><iframe srcdoc='<script>parent.__xss=4</script>'>"
    '"><a href="javascript:window.__xss=5">x</a><style>@import "http://evil.invalid/x.css"</style>{{window.__xss=6}}'
)
MARKDOWN = (
    "[click me](javascript:window.__xss=7)",
    "[or me](JaVa&#115;cript:window.__xss=8)",
    "![seen](http://evil.invalid/pixel.png)",
    "<details open ontoggle=window.__xss=9>",
    "`<img src=x onerror=window.__xss=10>`",
    "[mine]: javascript:window.__xss=11",
    "[mine]",
    "> <svg/onload=window.__xss=12>",
    "# <input autofocus onfocus=window.__xss=13>",
    f"| a | {IMAGE} |",
    "<http://evil.invalid/?q=<script>window.__xss=14</script>>",
)

_FOREIGN = """() => [...document.querySelectorAll("main *")].filter((element) =>
  ["IMG", "SCRIPT", "IFRAME", "STYLE", "OBJECT", "EMBED", "BASE", "LINK", "META"].includes(element.tagName) ||
  [...element.attributes].some((one) => one.name.startsWith("on") || /^\\s*(javascript|data|vbscript):/i.test(one.value)),
).map((element) => element.outerHTML.slice(0, 200))"""


async def _clean(window: BrowserWindow) -> None:
    assert await window.page.evaluate(_FOREIGN) == []


async def test_titles_messages_and_markdown_are_only_text(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    browser_window.forbid_dialogs()
    session_id = await api_user.start_agent(workspace, title=f"title {ALL}")
    await expect(browser_window.find_row(session_id)).to_contain_text(IMAGE)
    await _clean(browser_window)
    await browser_window.open_run(session_id)
    await browser_window.send_text(
        "\n".join((f"prompt {ALL}", f"think: {ALL}", *(f"say: {line}" for line in (ALL, *MARKDOWN)), "say: the end"))
    )
    await browser_window.wait_for_text("the end")
    await expect(browser_window.find_part("user-message")).to_contain_text(f"prompt {ALL}")
    await expect(browser_window.find_part("session-title")).to_contain_text(IMAGE)
    await expect(browser_window.find_part("assistant-message").first).to_contain_text(IMAGE)
    await browser_window.page.get_by_role("button", name="Thinking").first.click()
    await _clean(browser_window)
    for link in await browser_window.find_part("assistant-message").get_by_role("link").all():
        assert str(await link.get_attribute("href")).startswith(("http://", "https://"))


async def test_commands_paths_and_what_tools_say_are_only_text(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    browser_window.forbid_dialogs()
    spelled = ALL.replace("'", "")
    session_id, _ = await api_user.start_waiting_session(
        workspace, f"run: echo '{spelled}'\nwrite `{IMAGE}`: {ALL}\nread `{IMAGE}`", title="hostile"
    )
    await browser_window.navigate("#/inbox")
    card = browser_window.find_part("decision", has_text="hostile").filter(has_text=IMAGE)
    await expect(card.get_by_test_id("decision-command")).to_contain_text(spelled)
    await _clean(browser_window)
    await browser_window.open_run(session_id)
    await browser_window.find_part("decision").get_by_role("button", name="Approve").click()

    write = browser_window.find_part("decision")
    await expect(write.get_by_role("group", name=f"Lines of {IMAGE}")).to_contain_text(IMAGE)
    await _clean(browser_window)
    await write.get_by_role("button", name="Approve").click()
    cards = browser_window.find_part("tool-card")
    await expect(cards).to_have_count(3)
    for number in range(3):
        await expect(cards.nth(number)).to_have_attribute("data-state", "done")
        await cards.nth(number).get_by_role("button").first.click()
    await expect(cards.nth(0).get_by_test_id("tool-result")).to_contain_text(spelled)
    await expect(cards.nth(2).get_by_test_id("tool-result")).to_contain_text(ALL)
    await _clean(browser_window)
    await browser_window.navigate("#/admin/audit")
    await expect(browser_window.page.get_by_role("row").filter(has_text=IMAGE).first).to_be_visible()
    await _clean(browser_window)


async def test_names_and_contents_of_files_and_branches_are_only_text(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    browser_window.forbid_dialogs()
    branch = "x<img/src=x/onerror=window.__xss=15>"
    folder, file = "<svg onload=window.__xss=16>", f"{IMAGE}.html"
    (workspace / file).write_text("committed\n")
    await make_repository(workspace, branch=branch)
    (workspace / file).write_text(f"{ALL}\n")
    (workspace / folder).mkdir()
    (workspace / folder / f"{IMAGE}.md").write_text(ALL)
    session_id = await api_user.start_agent(workspace)
    await browser_window.open_run(session_id, "files")
    files = browser_window.page.get_by_role("complementary", name="Files")
    await files.get_by_text(file).click()
    await expect(browser_window.find_part("file-content")).to_have_text(f"{ALL}\n")
    await files.get_by_placeholder("Search in files").fill("onerror")
    await files.get_by_placeholder("Search in files").press("Enter")
    await expect(files.get_by_text(f"{file}:1")).to_be_visible()
    await _clean(browser_window)
    await files.get_by_role("button", name="Close").click()
    await files.get_by_text(folder).click()
    await files.get_by_text(f"{IMAGE}.md").click()
    await expect(browser_window.find_part("file-content")).to_have_text(ALL)
    await _clean(browser_window)

    await browser_window.open_run(session_id, "changes")
    await expect(browser_window.page.get_by_role("heading", name=branch)).to_be_visible()
    await expect(browser_window.page.get_by_role("group", name=f"Lines of {file}")).to_contain_text(ALL)
    await _clean(browser_window)


async def test_what_a_host_says_of_itself_and_its_runs_is_only_text(
    daemon: ManagedDaemon, relay_network: RelayNetwork, open_browser_window: OpenWindow, unique_name: str
) -> None:
    relay_network.hub = DaemonView(daemon.home)
    name = f"{unique_name[:6]} {IMAGE}"
    host = await relay_network.connect_host(f"host_{unique_name}", name=name)
    run_id = f"run-{unique_name}-{IMAGE}"
    await host.send_frames(
        host.make_started(run_id, 1, tool=ALL, cwd=f"/{ALL}", command=ALL),
        host.make_output(
            run_id, 2, f"{ALL}\r\n\x1b]8;;javascript:window.__xss=17\x07link\x1b]8;;\x07\x1b]0;{IMAGE}\x07\r\nout\r\n"
        ),
        host.make_question(run_id, 3, f"q-{unique_name}", prompt=f"{unique_name} {ALL}"),
    )
    await host.wait_for_ack(run_id, 3)
    window = await (await open_browser_window(daemon)).log_in_as_owner("#/hosts")
    window.forbid_dialogs()
    await expect(window.find_part("host-row", has_text=name)).to_contain_text("online")
    await _clean(window)
    await window.find_part("host-row", has_text=name).click()
    await expect(window.page.get_by_role("heading", name=name)).to_be_visible()
    await _clean(window)
    await window.navigate("#/inbox")
    await expect(window.find_part("decision", has_text=unique_name)).to_contain_text(IMAGE)
    await _clean(window)
    await window.navigate("#/new")
    await expect(window.page.get_by_label("Host", exact=True)).to_contain_text(name)
    await _clean(window)
    await window.navigate("#/")
    await window.page.locator("main").get_by_role("link").filter(has_text=unique_name).click()
    await expect(window.terminal_text).to_contain_text("<script>window.__xss=2</script>")
    link = await window.terminal_text.get_by_text("link").first.bounding_box()
    assert link is not None
    await window.page.mouse.click(link["x"] + 2, link["y"] + 2)
    assert await window.page.title() != IMAGE
    await _clean(window)


async def test_steps_of_a_flow_are_only_text(api_user: ApiUser, browser_window: BrowserWindow, workspace: Path) -> None:
    browser_window.forbid_dialogs()
    flow = flowing.make_chain(
        flowing.make_shell_step("talks", f"echo '{IMAGE}'"),
        flowing.make_node("decide", "approval", title=f"title {IMAGE}", message=ALL),
    )
    session_id = await flowing.start(api_user.push, workspace, flow)
    await browser_window.open_run(session_id)
    await expect(browser_window.find_part("decision")).to_contain_text(f"title {IMAGE}")
    await browser_window.page.locator('[data-step="talks"]').click()
    await browser_window.find_part("flow-step").get_by_role("button").first.click()
    await expect(browser_window.find_part("flow-step")).to_contain_text(IMAGE)
    await _clean(browser_window)
    await browser_window.find_button("As a list").click()
    await expect(browser_window.find_part("tool-card", has_text="talks").first).to_be_visible()
    await _clean(browser_window)


async def test_an_address_that_somebody_made_up_leads_nowhere_bad(daemon: ManagedDaemon, open_browser_window: OpenWindow) -> None:
    window = await (await open_browser_window(daemon)).log_in_as_owner()
    window.forbid_dialogs()
    for place in (f"#/s/{ALL}", f"#/hosts/{ALL}", f"#/admin/{IMAGE}", "#/s/%E0%A4%A", f"#token={IMAGE}", "#/s/../../auth/logout"):
        await window.navigate(place)
        await expect(window.page.locator("main")).not_to_be_empty()
        await _clean(window)


async def test_a_window_that_ran_or_asked_for_something_foreign_is_noticed(browser: Browser, daemon: ManagedDaemon) -> None:
    window = await (await BrowserWindow.open(browser, daemon.http, daemon.token)).log_in_as_owner()
    async with window.page.expect_event("pageerror"):
        await window.page.evaluate("""() => {
            window.__xss = 1;
            document.body.append(Object.assign(document.createElement("script"), { textContent: "window.__xss = 2" }));
            document.body.append(Object.assign(new Image(), { src: "http://evil.invalid/pixel.png" }));
            setTimeout(() => { throw new Error("a script that fails") });
        }""")
    with pytest.raises(AssertionError):
        await window.close()
    kinds = {problem.partition(":")[0] for problem in window.problems}
    assert {"policy", "script", "ran"} <= kinds
