"""Conversations begun anew, exchanged and forked; and the page that one is exported to."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient, PiDaemon


async def talk(pi: CheckedClient, session_id: str, *words: str) -> None:
    for word in words:
        await pi.execute("prompt", sessionId=session_id, message=f"say: {word}")


async def list_user_texts(pi: CheckedClient, session_id: str) -> list[str]:
    messages = (await pi.execute("get_messages", sessionId=session_id))["messages"]
    return [message["content"][0]["text"] for message in messages if message["role"] == "user"]


@pytest.mark.requirement("pi:fork:preview", "pi:fork:fork")
async def test_a_fork_has_what_came_before_the_message_and_gives_its_text(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await talk(pi_client, session_id, "one", "two", "three")
    points = (await pi_client.execute("get_fork_messages", sessionId=session_id))["messages"]
    assert [point["text"] for point in points] == ["say: one", "say: two", "say: three"]
    fork = await pi_client.execute("fork", sessionId=session_id, entryId=points[1]["entryId"])
    assert (fork["text"], fork["cancelled"]) == ("say: two", False)
    assert fork["sessionId"] == session_id
    assert await list_user_texts(pi_client, session_id) == ["say: one"]
    assert (await pi_client.execute("get_state", sessionId=session_id))["messageCount"] == 2
    await talk(pi_client, session_id, "other")
    assert await list_user_texts(pi_client, session_id) == ["say: one", "say: other"]
    before = next(
        file["path"]
        for file in (await pi_client.execute("list_session_files", sessionId=session_id))["files"]
        if file["path"].endswith("~1.jsonl")
    )
    await pi_client.execute("switch_session_file", sessionId=session_id, sessionPath=before)
    assert await list_user_texts(pi_client, session_id) == ["say: one", "say: two", "say: three"]


@pytest.mark.requirement("pi:fork:unknown-entry")
async def test_a_message_that_is_not_there_cannot_be_forked_from(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await talk(pi_client, session_id, "one")
    for entry_id in ("nothing", "e0", "e999999", "e-1", "x" * 256):
        assert "Internal" not in await pi_client.expect_refusal("fork", sessionId=session_id, entryId=entry_id)


@pytest.mark.requirement("pi:files:new-session")
async def test_a_new_beginning_keeps_the_session_and_its_old_conversation(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    await talk(pi_client, session_id, "old")
    assert await pi_client.execute("new_session", sessionId=session_id) == {"cancelled": False}
    assert (await pi_client.execute("get_state", sessionId=session_id))["messageCount"] == 0
    assert await list_user_texts(pi_client, session_id) == []
    assert await pi_client.execute("get_last_assistant_text", sessionId=session_id) == {"text": None}
    await talk(pi_client, session_id, "new")
    assert await pi_client.execute("get_last_assistant_text", sessionId=session_id) == {"text": "new"}
    files = [file["path"] for file in (await pi_client.execute("list_session_files", sessionId=session_id))["files"]]
    old = next(path for path in files if path.endswith("~1.jsonl"))
    assert await pi_client.execute("switch_session_file", sessionId=session_id, sessionPath=old) == {"cancelled": False}
    assert await list_user_texts(pi_client, session_id) == ["say: old"]


@pytest.mark.requirement("pi:files:switch")
async def test_a_session_can_be_switched_to_another_sessions_conversation(pi_client: CheckedClient, workspace: Path) -> None:
    one, other = await pi_client.start_session(workspace), await pi_client.start_session(workspace)
    await talk(pi_client, one, "one")
    path = (await pi_client.execute("get_state", sessionId=one))["sessionFile"]
    assert await pi_client.execute("switch_session_file", sessionId=other, sessionPath=path) == {"cancelled": False}
    assert await list_user_texts(pi_client, other) == ["say: one"]
    await talk(pi_client, other, "two")
    assert await list_user_texts(pi_client, one) == ["say: one"]
    missing = path.replace(one, "nobody")
    assert (
        await pi_client.expect_refusal("switch_session_file", sessionId=other, sessionPath=missing) == "Session nobody not found"
    )


class ExportPageParser(HTMLParser):
    """What of a page would be fetched or run."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.reached: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.reached += [value or "" for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.requirement("pi:export:page")
async def test_a_session_is_exported_as_one_page_that_needs_nothing_else(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    await pi_client.execute("set_session_name", sessionId=session_id, name="<b>bold</b>")
    await talk(pi_client, session_id, "<script>alert(1)</script> & more")
    exported = await pi_client.execute("export_html", sessionId=session_id, outputPath="out/page.html")
    assert exported["path"] == str(workspace / "out" / "page.html")
    page = ExportPageParser()
    page.feed(Path(exported["path"]).read_text())
    assert "<script>alert(1)</script> & more" in page.text
    assert "<b>bold</b>" in page.text
    assert page.reached == []
    assert "script" not in page.tags


@pytest.mark.requirement("pi:export:page")
async def test_without_a_path_the_page_lies_in_the_servers_own_folder(pi_client: CheckedClient, pi_daemon: PiDaemon) -> None:
    session_id = await pi_client.start_session()
    path = Path((await pi_client.execute("export_html", sessionId=session_id))["path"])
    assert path.is_relative_to(pi_daemon.home)
    assert path.read_text().startswith("<!doctype html>") or path.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.requirement("pi:export:paths")
async def test_no_page_is_written_outside_the_sessions_folder(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join, workspace: Path
) -> None:
    session_id = await pi_client.start_session(workspace)
    (workspace / "link").symlink_to("/tmp")
    for path in ("/tmp/escaped.html", "../escaped.html", "link/escaped.html", "page.txt", ".bashrc", "a\0b.html"):
        assert (await pi_client.expect_refusal("export_html", sessionId=session_id, outputPath=path)).startswith(
            "Validation failed: outputPath"
        )
    assert not Path("/tmp/escaped.html").exists()
