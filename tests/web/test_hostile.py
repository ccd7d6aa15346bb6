"""Text that would like to be more than text, in every place that shows some: all of it is seen, and none of it runs."""

import asyncio
from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.relay.stage import Place, Stage
from tests.web.conftest import OpenWindow
from tests.web.house import House, repository
from tests.web.visiting import Window, expect

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


@pytest.fixture
async def careful(window: Window) -> Window:
    window.forbid_dialogs()
    return window


async def _clean(window: Window) -> None:
    assert await window.page.evaluate(_FOREIGN) == []


async def test_titles_messages_and_markdown_are_only_text(house: House, window: Window, workspace: Path) -> None:
    window.forbid_dialogs()
    session_id = await house.agent(workspace, title=f"title {ALL}")
    text = "\n".join((f"prompt {ALL}", *(f"say: {line}" for line in (ALL, *MARKDOWN)), f"think: {ALL}", "say: the end"))
    await expect(window.row(session_id)).to_contain_text(IMAGE)
    await _clean(window)
    await window.go_to(session_id)
    await window.say(text)
    await window.said("the end")
    await expect(window.part("user-message")).to_contain_text(f"prompt {ALL}")
    await expect(window.part("session-title")).to_contain_text(ALL)
    await expect(window.part("assistant-message").first).to_contain_text(IMAGE)
    await window.page.get_by_role("button", name="Thinking").first.click()
    await _clean(window)
    for link in await window.part("assistant-message").get_by_role("link").all():
        assert str(await link.get_attribute("href")).startswith(("http://", "https://"))


async def test_commands_paths_and_what_tools_say_are_only_text(house: House, window: Window, workspace: Path) -> None:
    window.forbid_dialogs()
    session_id = await house.agent(workspace)
    quoted = ALL.replace("'", "")
    await house.send(session_id, f"run: cat <<'END'\nwrite `{IMAGE}`: {ALL}\nask: {ALL} | {IMAGE}\nrun: echo '{quoted}'")
    await window.go_to(session_id)
    card = window.part("decision")
    await expect(card).to_contain_text("cat <<")
    await card.get_by_role("button", name="Approve").click()
    await expect(card).to_contain_text(IMAGE)
    await _clean(window)
    await window.go("#/inbox")
    waiting = window.part("decision", has_text=IMAGE).filter(has=window.button_named("Approve"))
    await expect(waiting.first).to_be_visible()
    await _clean(window)
