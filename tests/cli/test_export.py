"""`tower export`: a real session as a document, on stdout or as a whole file."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import SESSION, ScriptedDaemon

from switchtower.core.ports import journal
from switchtower.stores.sqlite.journal import SqliteJournal

REQUEST = "write notes.txt: some text\nrun: printf '```\\nout\\n'"


@pytest.fixture
def session(shared_command: TowerCommand) -> str:
    """One that wrote a file and ran a command, with a title that means something elsewhere."""
    ended = shared_command("run", "--headless", "--json", "--approve", "always", REQUEST)
    assert ended.code == 0, ended.stderr
    session_id: str = ended.json["sessionId"]
    assert shared_command("rename", session_id, "a <b>title</b>").code == 0
    return session_id


def test_markdown_has_what_was_said_done_and_decided(shared_command: TowerCommand, session: str) -> None:
    ended = shared_command("export", session)

    text = ended.stdout.decode()
    assert (ended.code, ended.stderr) == (0, "")
    assert text.startswith("# a \\<b\\>title\\</b\\>\n\n- Session: ")
    assert "> write notes.txt: some text\n> run: printf" in text
    assert "<details><summary>Thinking</summary>\n\n```\n" in text
    assert "### `sandbox_write_file` · " in text
    assert "### Approval: Write a file · approved by cli\n" in text
    assert "```diff\n--- /dev/null\n+++ b/notes.txt\n@@ -0,0 +1 @@\n+some text" in text
    assert "\n````\n```\nout\n[exit code 0]\n````\n" in text, "a fence that the output cannot end"
    assert text.index("Approval: Run a command") < text.index("### `sandbox_exec`")
    assert "**success** · " in text
    assert text.rstrip().splitlines()[-1].startswith("Usage: ")


def test_html_is_one_page_with_everything_escaped(shared_command: TowerCommand, session: str) -> None:
    ended = shared_command("export", session, "--format", "html")

    text = ended.stdout.decode()
    assert ended.code == 0
    assert text.startswith("<!doctype html>")
    assert "<title>a &lt;b&gt;title&lt;/b&gt;</title>" in text
    assert "<b>title" not in text
    assert "<script" not in text
    assert '<span class="green">+some text</span>' in text
    assert text.endswith("</html>\n")


def test_jsonl_is_the_daemon_s_own_lines(shared_command: TowerCommand, session: str) -> None:
    exported = shared_command("export", session, "--format", "jsonl")

    assert exported.stdout == shared_command("attach", session, "--jsonl", "--no-follow").stdout
    assert [event["seq"] for event in exported.events] == list(range(1, len(exported.events) + 1))


@pytest.mark.parametrize(
    ("name", "beginning"), [("s.md", b"# "), ("s.HTML", b"<!doctype"), ("s.jsonl", b'{"v":'), ("s.txt", b"# "), ("s", b"# ")]
)
def test_a_file_s_name_says_the_form(shared_command: TowerCommand, session: str, name: str, beginning: bytes) -> None:
    ended = shared_command("export", session, "-o", f"new folder/{name}")

    assert (ended.code, ended.stdout, ended.stderr) == (0, b"", f"wrote new folder/{name}\n")
    assert (shared_command.folder / "new folder" / name).read_bytes().startswith(beginning)
    assert [entry.name for entry in (shared_command.folder / "new folder").iterdir()] == [name]


def test_the_flag_goes_before_the_file_s_name(shared_command: TowerCommand, session: str) -> None:
    shared_command("export", session, "-o", "s.html", "--format", "jsonl")

    assert (shared_command.folder / "s.html").read_bytes().startswith(b'{"v":')


def test_a_file_that_cannot_be_written_is_one_line_with_a_remedy(shared_command: TowerCommand, session: str) -> None:
    ended = shared_command("export", session, "-o", "/proc/x.md")

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.startswith("tower: cannot write `/proc/x.md`: ")
    assert ended.stderr.count("\n") == 1
    assert "hint: " in ended.stderr


def test_an_export_that_fails_leaves_the_file_that_was_there(shared_command: TowerCommand) -> None:
    (shared_command.folder / "kept.md").write_text("before")

    ended = shared_command("export", "sess_01JZZZZZZZZZZZZZZZZZZZZZZZ", "-o", "kept.md")

    assert ended.code == 1
    assert "SESSION_NOT_FOUND" in ended.stderr
    assert (shared_command.folder / "kept.md").read_text() == "before"
    assert [entry.name for entry in shared_command.folder.iterdir()] == ["kept.md"]


def test_a_program_in_a_terminal_is_its_last_screen(shared_command: TowerCommand) -> None:
    script = "printf 'first\\n'; printf '\\033[2J\\033[H\\033[31mred\\033[0m ```\\n  indented\\n'; exit 3"
    session_id = shared_command("exec", "--json", "--", "sh", "-c", script).json["sessionId"]

    text = shared_command("export", session_id).stdout.decode()
    page = shared_command("export", session_id, "--format", "html").stdout.decode()

    assert "## The terminal's screen\n\n````\nred ```\n  indented\n````\n" in text
    assert "first\n" not in text.partition("screen\n")[2]
    assert "- Exit code: 3\n" in text
    assert "<pre class=screen>\nred ```\n  indented</pre>" in page


def test_a_session_that_is_still_at_work_is_told_up_to_now(tower_command: TowerCommand, line_with: Any) -> None:
    process = tower_command.start("run", "--headless", "--approve", "always", "run: echo so far; sleep 70.5")
    line_with(process, "so far")

    text = tower_command("export", "last").stdout.decode()
    process.terminate()
    process.communicate(timeout=60)

    assert "### `sandbox_exec` · no result" in text
    assert "so far" in text
    assert "- State: running" in text


def test_what_retention_has_taken_is_said_and_the_rest_is_there(tower_command: TowerCommand) -> None:
    first = tower_command("run", "--headless", "--json", f"say: {'word ' * 60}").json
    tower_command("run", "--headless", "--attach", first["sessionId"], "say: the last words")
    tower_command("stop")
    asyncio.run(_prune(next(tower_command.home.rglob("journal.db"))))

    text = tower_command("export", "last").stdout.decode()
    lines = tower_command("export", "last", "--format", "jsonl").events

    assert "no longer kept in full" in text
    assert "the last words" in text
    assert text.rstrip().splitlines()[-1].startswith("Usage: ")
    assert 0 < text.partition("---")[2].count("word") < 60, "what is gone is not told"
    assert lines[0]["payload"]["code"] == "EVENT_GAP"
    seqs = [event["seq"] for event in lines[1:]]
    assert seqs == list(range(seqs[0], seqs[-1] + 1))
    assert lines[0]["payload"]["detail"].endswith(f"earliest retained seq is {seqs[0]}"), "from the first that is kept"
    assert lines[-1]["type"] == "run_complete"


async def _prune(place: Path) -> None:
    """As time does: the oldest streamed text goes."""
    store = SqliteJournal(place)
    await store.open()
    try:
        assert await store.prune(journal.Retention(20, 0), 1_800_000_000_000) > 0
    finally:
        await store.close()


def test_a_daemon_that_tells_of_the_same_gap_for_ever_is_not_asked_for_ever(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    replay = {"fromSeq": 1, "toSeq": 5, "completed": True, "gap": True}
    scripted_daemon.answers["attach_session"] = {"sessionId": SESSION, "state": "idle", "replay": replay}
    scripted_daemon.add_status("Run started", "hi")
    gap = {"code": "EVENT_GAP", "message": "", "detail": "Requested lastSeenSeq=0 but earliest retained seq is 2"}
    scripted_daemon.add_event("warning", gap, run_id=None)

    ended = tower_command("export", SESSION, "--format", "jsonl")

    assert ended.code == 0
    assert len(scripted_daemon.list_requests("attach_session")) <= 4


def test_an_old_daemon_s_session_has_only_its_id_for_a_head(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.capabilities.clear()
    scripted_daemon.add_status("Run started", "hi")
    scripted_daemon.add_event("assistant_token", {"text": "hello"})
    scripted_daemon.add_event("something_new", {"x": 1})
    scripted_daemon.add_completion()

    ended = tower_command("export", SESSION)

    assert ended.stdout.decode().startswith(f"# Session {SESSION.replace('_', chr(92) + '_')}\n\n- Session: ")
    assert "> hi\n" in ended.stdout.decode()
    assert "hello\n" in ended.stdout.decode()


def test_a_reader_that_leaves_ends_it_quietly(shared_command: TowerCommand, session: str) -> None:
    process = shared_command.start("export", session, "--format", "jsonl")
    process.stdout.close()

    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_wrong_usage_says_which_forms_there_are(tower_command: TowerCommand) -> None:
    ended = tower_command("export", "last", "--format", "pdf")

    assert ended.code == 64
    assert "markdown" in ended.stderr


def test_a_long_session_is_exported_in_the_memory_of_a_short_one(shared_command: TowerCommand) -> None:
    """By the peak that the kernel has counted for the process."""
    short = shared_command("run", "--headless", "--json", "count 10").json["sessionId"]
    long = shared_command("run", "--headless", "--json", "\n".join(["count 3000"] * 5)).json["sessionId"]

    peaks = [_measure_peak(shared_command, session_id) for session_id in (short, long)]

    assert peaks[1] < peaks[0] + 40 * 1024, f"in KiB: {peaks}"


def _measure_peak(shared: TowerCommand, session_id: str) -> int:
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, "export", session_id, "-o", "document.md"],
        capture_output=True,
        cwd=shared.folder,
        env=shared.environment,
        timeout=60,
    )
    return int(ended.stderr.split()[-1])


PROBE = """
import resource, sys
from switchtower.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def test_json_lines_are_json(shared_command: TowerCommand, session: str) -> None:
    for line in shared_command("export", session, "--format", "jsonl").stdout.splitlines():
        assert json.loads(line)["kind"] == "event"
