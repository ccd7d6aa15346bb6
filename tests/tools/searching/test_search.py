"""The same contract for both who search: ripgrep, and our own for where there is none."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from switchtower.tools import outcome
from switchtower.tools.processes import orphans
from switchtower.tools.search import line_search, workspace_search

BOTH = ("ripgrep", "python")


@pytest.fixture(params=BOTH)
def searcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "python":
        monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("without-rg")))
        assert workspace_search.find_ripgrep() is None
    elif workspace_search.find_ripgrep() is None:
        pytest.skip("ripgrep is not installed")
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def put(root: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        write(root, name, content)


def write(root: Path, path: str, content: str | bytes) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


async def run_search(root: Path, pattern: str, *, seconds: float = 30.0, **args: Any) -> outcome.ToolOutput:
    context = outcome.ToolContext(workspace=str(root), run_id=f"run_{uuid4().hex}")
    try:
        return await workspace_search.SearchTool(seconds=seconds).execute({"pattern": pattern, **args}, context)
    except outcome.ToolFailed as failed:
        return outcome.make_failure(failed.type, failed.message)
    finally:
        await wait_until_idle(context.run_id)


async def wait_until_idle(run_id: str) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(orphans.has_marked_processes, run_id):
            await asyncio.sleep(0)


async def list_lines(root: Path, pattern: str, **args: Any) -> list[str]:
    output = await run_search(root, pattern, **args)
    assert not output.is_error, output.text
    return [] if output.text == "[no match]" else output.text.split("\n")


async def test_a_find_is_a_path_a_line_and_its_text(searcher: str, root: Path) -> None:
    write(root, "src/b.py", "def one():\n\treturn 1\n")
    write(root, "a.txt", "nothing\nreturn to sender")

    assert await list_lines(root, "return") == ["a.txt:2:return to sender", "src/b.py:2:\treturn 1"]
    assert await list_lines(root, r"^def \w+\(\):$") == ["src/b.py:1:def one():"]
    assert await list_lines(root, "nowhere") == []


async def test_upper_and_lower_case_differ_unless_told_otherwise(searcher: str, root: Path) -> None:
    put(root, a="Hello\nhello\nÜBER\n")

    assert await list_lines(root, "hello") == ["a:2:hello"]
    assert await list_lines(root, "hello", case="ignore") == ["a:1:Hello", "a:2:hello"]
    assert await list_lines(root, "über", case="ignore") == ["a:3:ÜBER"]


async def test_a_path_narrows_the_search_to_a_folder_or_a_file(searcher: str, root: Path) -> None:
    for path in ("a.txt", "src/a.txt", "src/deep/a.txt", "srcs/a.txt"):
        write(root, path, "x\n")

    assert await list_lines(root, "x", path="src") == ["src/a.txt:1:x", "src/deep/a.txt:1:x"]
    assert await list_lines(root, "x", path="src/deep/a.txt") == ["src/deep/a.txt:1:x"]
    assert await list_lines(root, "x", path=f"{root}/src/deep") == ["src/deep/a.txt:1:x"]
    assert (await run_search(root, "x", path="gone")).error is not None
    assert (await run_search(root, "x", path="gone")).text == "`gone` does not exist"


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("src/**", ["src/b.py", "src/deep/c.py", "src/deep/d.ts"]),
        ("*.{ts,md}", ["src/deep/d.ts"]),
        ("[ab].py", ["a.py", "src/b.py"]),
        ("[!ab].py", ["src/deep/c.py"]),
        ("?.ts", ["src/deep/d.ts"]),
        ("/a.py", ["a.py"]),
        ("!*.py", ["src/deep/d.ts"]),
        ("!src", ["a.py"]),
        ("!deep", ["a.py", "src/b.py"]),
        ("none", []),
    ],
)
async def test_a_glob_chooses_files(searcher: str, root: Path, glob: str, found: list[str]) -> None:
    for path in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/d.ts"):
        write(root, path, "x\n")

    assert await list_lines(root, "x", glob=glob) == [f"{path}:1:x" for path in found]


async def test_what_git_ignores_is_left_out_and_hidden_files_are_not(searcher: str, root: Path) -> None:
    write(root, ".gitignore", "*.log\n!keep.log\n/build/\n# comment\nout/*.txt\n**/cache\nonly-folders/\nspace\\ \n\\!bang\n")
    write(root, "src/.gitignore", "local.txt\n")
    kept = [
        ".github/workflow.yml",
        "keep.log",
        "out/a.md",
        "src/a.txt",
        "src/build/a.txt",
        "src/only-folders",
        "src/out/a.txt",
        "z/local.txt",
    ]
    ignored = [
        "a.log",
        "src/b.log",
        "build/a.txt",
        "out/a.txt",
        "src/cache/a.txt",
        "z/only-folders/a.txt",
        "src/local.txt",
        "src/sub/local.txt",
        "!bang",
    ]
    for path in (*kept, *ignored, ".git/config"):
        write(root, path, "x\n")

    assert await list_lines(root, "^x$") == [f"{path}:1:x" for path in kept]


async def test_rules_of_folders_above_count_for_a_search_below(searcher: str, root: Path) -> None:
    write(root, ".gitignore", "*.log\n/src/skipped/\n")
    for path in ("src/a.log", "src/a.txt", "src/skipped/a.txt"):
        write(root, path, "x\n")

    assert await list_lines(root, "x", path="src") == ["src/a.txt:1:x"]
    assert await list_lines(root, "x", path="src/skipped") == ["src/skipped/a.txt:1:x"], "named by the model, so wanted"


async def test_rules_are_the_same_inside_a_repository(searcher: str, root: Path) -> None:
    subprocess.run(["/usr/bin/env", "git", "init", "-q", root], check=True, env={"PATH": os.defpath})
    write(root, ".gitignore", "*.log\n")
    write(root, ".git/info/exclude", "mine.txt\n")
    for path in ("a.log", "a.txt", "mine.txt", "src/b.log", "src/mine.txt"):
        write(root, path, "x\n")

    assert await list_lines(root, "x") == ["a.txt:1:x"]
    assert await list_lines(root, "x", path="src") == []


async def test_a_rule_above_a_workspace_without_a_repository_hides_nothing(searcher: str, root: Path) -> None:
    write(root.parent, ".gitignore", "*\n")
    write(root, "src/a.txt", "x\n")

    assert await list_lines(root, "x") == ["src/a.txt:1:x"]
    assert await list_lines(root, "x", path="src") == ["src/a.txt:1:x"]


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "server.pem", "id_rsa", ".ssh/config", ".aws/credentials", ".SSH/Config", "a.KEY"]
)
async def test_files_of_secrets_are_never_shown(searcher: str, root: Path, name: str) -> None:
    write(root, name, "hush x\n")
    write(root, "open.txt", "x\n")

    assert await list_lines(root, "x") == ["open.txt:1:x"]
    assert await list_lines(root, "x", glob=f"*{Path(name).suffix}*") == (["open.txt:1:x"] if not Path(name).suffix else [])
    for path in (name, str(Path(name).parent)):
        assert "hush" not in (await run_search(root, "x", path=path)).text


async def test_links_are_not_followed_out_or_in(searcher: str, root: Path) -> None:
    write(root.parent, "outside/plain.txt", "x\n")
    write(root, "real/plain.txt", "x\n")
    (root / "out").symlink_to("../outside")
    (root / "out.txt").symlink_to("../outside/plain.txt")
    (root / "again").symlink_to("real")
    (root / "circle").symlink_to(".")

    assert await list_lines(root, "x") == ["real/plain.txt:1:x"]
    assert await list_lines(root, "x", path="again") == ["real/plain.txt:1:x"]
    for path in ("out", "out.txt", "../outside", "/etc", "out/plain.txt"):
        output = await run_search(root, "x", path=path)
        assert output.error is not None
        assert output.error.type == "EDIT_GUARD_BLOCKED"


SWAPPER = """
import ctypes, sys
AT_FDCWD, RENAME_EXCHANGE = -100, 2
libc = ctypes.CDLL(None, use_errno=True)
print("ready", flush=True)
while True:
    for inside, bait in (sys.argv[1:3], sys.argv[3:5]):
        if libc.renameat2(AT_FDCWD, inside.encode(), AT_FDCWD, bait.encode(), RENAME_EXCHANGE):
            sys.exit(ctypes.get_errno())
"""


async def test_a_folder_and_a_file_swapped_for_links_all_the_time_give_nothing_away(searcher: str, root: Path) -> None:
    write(root.parent, "outside/plain.txt", "needle outside\n")
    write(root, "door/plain.txt", "needle inside\n")
    write(root, "file.txt", "needle inside\n")
    (root / "bait").symlink_to("../outside")
    (root / "bait.txt").symlink_to("../outside/plain.txt")
    swapped = [root / "door", root / "bait", root / "file.txt", root / "bait.txt"]
    inside = 0
    with subprocess.Popen([sys.executable, "-c", SWAPPER, *swapped], stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == b"ready\n"
        try:
            for _ in range(60 if searcher == "ripgrep" else 12):
                text = (await run_search(root, "needle")).text
                assert "outside" not in text
                inside += "inside" in text
            assert swapper.poll() is None, "somebody was swapping all the time"
        finally:
            swapper.kill()
    assert inside


async def test_our_own_search_does_not_even_read_what_a_swapped_folder_leads_to(root: Path) -> None:
    write(root.parent, "outside/plain.txt", "needle outside\n")
    write(root, "door/plain.txt", "needle inside\n")
    write(root, "file.txt", "needle inside\n")
    (root / "bait").symlink_to("../outside")
    (root / "bait.txt").symlink_to("../outside/plain.txt")
    query = line_search.LineQuery(pattern="needle", start=".", glob=None, case_sensitive=True, most_results=10**6)
    swapped = [root / "door", root / "bait", root / "file.txt", root / "bait.txt"]
    with subprocess.Popen([sys.executable, "-c", SWAPPER, *swapped], stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == b"ready\n"
        try:
            for _ in range(10):
                told = subprocess.run(line_search.build_command(str(root), query), capture_output=True, check=True).stdout
                assert b"outside" not in told
        finally:
            swapper.kill()


@pytest.mark.parametrize("content", [b"x\0x\n", b"\x89PNG\r\n\x1a\n\0x\n", "x\n".encode("utf-16")])
async def test_binary_files_are_skipped(searcher: str, root: Path, content: bytes) -> None:
    put(root, picture=content, text="x\n")

    assert await list_lines(root, "x") == ["text:1:x"]
    assert await list_lines(root, "x", path="picture") == []


async def test_a_file_that_turns_binary_after_a_while_does_not_spoil_the_finds_after_it(searcher: str, root: Path) -> None:
    put(root, a=b"x\n" + b"y" * 200_000 + b"\n\0x\n", b="x\n")

    assert await list_lines(root, "x") == ["a:1:x", "b:1:x"]


async def test_text_that_is_not_utf8_is_searched_and_shown_as_well_as_may_be(searcher: str, root: Path) -> None:
    put(root, latin=b"caf\xe9 x\n")

    assert await list_lines(root, "x") == ["latin:1:caf\ufffd x"]


@pytest.mark.parametrize("name", ["-rf", "--help", "a\nb", "a:1:b", "a b", "'", "ü", "[x]", "*", "a\\nb", "\x1b[31m"])
async def test_hostile_names_are_searched_and_shown_on_one_line(searcher: str, root: Path, name: str) -> None:
    write(root, f"sub/{name}", "x\n")
    shown = name.replace("\n", "\\n").replace("\x1b", "\\x1b")

    assert await list_lines(root, "x") == [f"sub/{shown}:1:x"]
    assert await list_lines(root, "x", path=f"sub/{name}") == [f"sub/{shown}:1:x"]
    (root / name).mkdir()
    (root / name / "inner").write_text("x")
    assert await list_lines(root, "x", path=name) == [f"{shown}/inner:1:x"]


async def test_a_name_that_is_no_text_is_searched_too(searcher: str, root: Path) -> None:
    file = os.open(os.fsencode(root) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY)
    os.write(file, b"x\n")
    os.close(file)

    assert await list_lines(root, "x") == ["caf\\xe9:1:x"]


@pytest.mark.parametrize("pattern", ["-x", "--help", "-e", "--", "-f/etc/passwd", "--pre=touch ran"])
async def test_a_pattern_or_a_glob_is_never_an_option(searcher: str, root: Path, pattern: str) -> None:
    put(root, a=f"before {pattern} after\n", b="nothing\n")

    assert await list_lines(root, pattern) == [f"a:1:before {pattern} after"]
    assert await list_lines(root, "nothing", glob=pattern) == []
    assert not (root / "ran").exists()


async def test_a_configuration_of_the_users_has_no_say(searcher: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root.parent, "ripgreprc", "--follow\n--invert-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(root.parent / "ripgreprc"))
    put(root, a="x\ny\n")

    assert await list_lines(root, "x") == ["a:1:x"]


@pytest.mark.parametrize("pattern", ["a(", "[z-a]", "*", "(?P<a", "a{2,1}"])
async def test_a_bad_pattern_is_a_clear_error(searcher: str, root: Path, pattern: str) -> None:
    output = await run_search(root, pattern)

    assert output.error is not None
    assert output.error.type == "UNKNOWN"
    assert output.text.startswith("the pattern or the glob cannot be read: ")
    assert "Traceback" not in output.text


async def test_a_bad_glob_is_a_clear_error(searcher: str, root: Path) -> None:
    assert (await run_search(root, "x", glob="{a")).text.startswith("the pattern or the glob cannot be read: ")
    assert (await run_search(root, "x", glob="[a")).text.startswith("the pattern or the glob cannot be read: ")


@pytest.mark.parametrize("pattern", ["a\nb", r"a\nb", r"\\\n"])
async def test_a_pattern_over_several_lines_is_refused(searcher: str, root: Path, pattern: str) -> None:
    assert "within one line" in (await run_search(root, pattern)).text


async def test_a_backslash_before_an_n_is_no_newline(searcher: str, root: Path) -> None:
    put(root, a="C:\\new\n")

    assert await list_lines(root, r"C:\\new") == ["a:1:C:\\new"]


async def test_results_are_counted_and_cut(searcher: str, root: Path) -> None:
    put(root, a="x\n" * 300, b="x\n" * 300)

    shown = (await run_search(root, "x", max_results=5)).text.split("\n")
    assert shown[:5] == [f"a:{number}:x" for number in range(1, 6)]
    assert shown[5:] == ["[… only the first 5 results are shown; narrow the pattern, the path or the glob …]"]
    exact = (await run_search(root, "x", max_results=5, path="a", glob="none")).text
    assert exact.split("\n")[0] == "a:1:x", "a file that is named is searched whatever the glob says"
    put(root, c="only\n" * 5)
    assert await list_lines(root, "only", max_results=5) == [f"c:{number}:only" for number in range(1, 6)]


async def test_an_answer_has_at_most_32_kib(searcher: str, root: Path) -> None:
    put(root, a=("x" * 390 + "\n") * 300)

    text = (await run_search(root, "x", max_results=200)).text

    assert 30 * 1024 < len(text) < 33 * 1024
    assert text.endswith("narrow the pattern, the path or the glob …]")


async def test_a_line_of_ten_megabytes_is_shown_around_its_match(searcher: str, root: Path) -> None:
    put(root, a="y" * 10_000_000 + "needle" + "z" * 1000)

    [line] = await list_lines(root, "needle")

    assert line.startswith("a:1:…yyy")
    assert "yneedlez" in line
    assert line.endswith("zzz…")
    assert len(line) < 500


async def test_crlf_ends_a_line_and_is_not_shown(searcher: str, root: Path) -> None:
    put(root, a=b"one\r\ntwo\r\nlast")

    assert await list_lines(root, "^two$") == ["a:2:two"]
    assert await list_lines(root, "one$|last$") == ["a:1:one", "a:3:last"]


async def test_a_huge_file_is_searched_to_its_end(searcher: str, root: Path) -> None:
    put(root, a=b"some words here\n" * 2_000_000 + b"needle\n")

    assert await list_lines(root, "needle") == ["a:2000001:needle"]


async def test_a_line_of_forty_megabytes_is_one_line(searcher: str, root: Path) -> None:
    put(root, a="first\n" + "y" * 20_000_000 + "needle" + "y" * 20_000_000 + "needle\nneedle\n")

    [line, last] = await list_lines(root, "needle")

    assert line.startswith("a:2:…yyy")
    assert "yneedley" in line
    assert last == "a:3:needle"


async def test_pipes_and_devices_are_not_opened(searcher: str, root: Path) -> None:
    os.mkfifo(root / "pipe")
    put(root, a="x\n")
    if os.geteuid() == 0:
        os.mknod(root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))

    assert await list_lines(root, "x", seconds=10) == ["a:1:x"]
    for path in ("pipe", "zero"):
        if (root / path).exists():
            assert (await run_search(root, "x", path=path, seconds=10)).text == f"`{path}` is not a regular file"


async def test_a_file_that_may_not_be_read_is_passed_over(searcher: str, root: Path) -> None:
    put(root, a="x\n", b="x\n")
    (root / "locked").mkdir()
    (root / "a").chmod(0)
    (root / "locked").chmod(0)
    try:
        expected = ["a:1:x", "b:1:x"] if os.geteuid() == 0 else ["b:1:x"]
        assert await list_lines(root, "x") == expected
    finally:
        (root / "locked").chmod(0o755)


async def test_a_deep_tree_is_searched(searcher: str, root: Path) -> None:
    write(root, "/".join(["d"] * 100) + "/a", "x\n")

    assert await list_lines(root, "x") == ["/".join(["d"] * 100) + "/a:1:x"]


async def test_a_missing_workspace_is_unreachable(searcher: str, root: Path) -> None:
    output = await run_search(root / "gone", "x")

    assert output.error is not None
    assert output.error.type == "SANDBOX_UNREACHABLE"


async def test_a_pattern_that_never_ends_is_given_up_and_leaves_nothing_running(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("without-rg")))
    put(root, a="found aaaa\n", b="a" * 5000 + "!\n")

    output = await run_search(root, r"found|(a+)+$", seconds=3)

    assert output.error is not None
    assert output.error.type == "EXEC_TIMEOUT"
    assert output.text.startswith("a:1:found aaaa\n[the search did not end within 3 s")


async def test_a_cancelled_search_leaves_nothing_running(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("without-rg")))
    put(root, b="a" * 5000 + "!\n")
    context = outcome.ToolContext(workspace=str(root), run_id=f"run_{uuid4().hex}")
    searching = asyncio.create_task(workspace_search.SearchTool().execute({"pattern": r"(a+)+$"}, context))
    while not await asyncio.to_thread(orphans.has_marked_processes, context.run_id):
        assert not searching.done()

    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching

    await wait_until_idle(context.run_id)


async def test_a_module_of_the_workspace_is_not_imported_by_our_own_search(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("without-rg")))
    monkeypatch.setenv("PYTHONPATH", str(root))
    for name in ("re.py", "os.py", "switchtower.py", "sitecustomize.py", "msgspec.py"):
        write(root, name, f"open({str(root / 'ran')!r}, 'w')\n")

    assert len(await list_lines(root, "open")) == 5
    assert not (root / "ran").exists()


async def test_ripgrep_in_the_current_folder_is_not_ours(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which("true")
    assert real is not None
    (root / "rg").symlink_to(real)
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", "")
    assert shutil.which("rg", path=".") is not None

    monkeypatch.setenv("PATH", ".")
    assert workspace_search.find_ripgrep() is None


async def test_our_own_search_ends_by_itself_when_whoever_started_it_is_gone(root: Path) -> None:
    put(root, a="x\n" * 100_000)
    query = line_search.LineQuery(pattern="x", start=".", glob=None, case_sensitive=True, most_results=10**6)
    with subprocess.Popen(line_search.build_command(str(root), query), stdout=subprocess.PIPE) as searching:
        assert searching.stdout is not None
        assert searching.stdout.read(10) == b"./a\x001:1:0:"
        searching.stdout.close()
        assert searching.wait(30) == 0


async def test_a_search_that_crashes_is_not_taken_for_one_that_found_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("without-rg")))
    put(root, a="found\n")

    output = await run_search(root, "(" * 497 + "found" + ")" * 497)  # deeper than Python's own parser can go

    assert output.error is not None
    assert "the search broke off" in output.text
