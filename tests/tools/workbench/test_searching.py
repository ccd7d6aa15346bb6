"""A search finds lines of the run's folder, with ripgrep and without it, and nobody can make it do anything else."""

import asyncio
import os
import shlex
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from tests.tools.workbench.swapping import swap_repeatedly

from switchtower.tools import remote_ops
from switchtower.tools.processes import orphans
from switchtower.tools.remote_ops import files


@pytest.fixture(params=["ripgrep", "ours"], autouse=True)
def searcher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "ours":
        monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("nothing-installed")))
    return str(request.param)


async def list_lines(cwd: Path, q: str) -> list[str]:
    async with asyncio.timeout(60):
        result = await remote_ops.search_folder(str(cwd), q)
    assert not result.truncated
    return [f"{match.path}:{match.line}:{match.column}:{match.text}" for match in result.matches]


async def get_refusal(cwd: Path, q: str) -> str:
    async with asyncio.timeout(60):
        with pytest.raises(remote_ops.OperationRefused) as caught:
            await remote_ops.search_folder(str(cwd), q)
    return caught.value.message


async def test_a_match_has_relays_fields(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").write_text("one\r\n  ätwo three\r\n")

    result = await remote_ops.search_folder(str(tmp_path), "two")

    match = {"path": "src/a", "line": 2, "column": 5, "text": "  ätwo three"}
    assert msgspec.to_builtins(result) == {"matches": [match], "truncated": False}
    assert await list_lines(tmp_path, "nowhere") == []


async def test_a_query_is_a_regular_expression_and_text_when_it_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("foo(bar\nfoo1bar\n[x\na{1\nC:\\new file*\n")

    assert await list_lines(tmp_path, r"foo\dbar") == ["a:2:1:foo1bar"]
    assert await list_lines(tmp_path, "foo(bar") == ["a:1:1:foo(bar"]
    assert await list_lines(tmp_path, "[x") == ["a:3:1:[x"]
    assert await list_lines(tmp_path, "*") == ["a:5:12:C:\\new file*"]
    assert await list_lines(tmp_path, "file*(") == []


@pytest.mark.parametrize(
    "q",
    [
        "-e",
        "--",
        "-",
        "--pre=sh",
        "--pre=/bin/touch",
        "--files",
        "-f/etc/passwd",
        "--help",
        "--version",
        "-uuu",
        "--hostname-bin=sh",
    ],
)
async def test_a_query_is_never_an_option(tmp_path: Path, q: str) -> None:
    (tmp_path / "a").write_text(f"nothing\nwith {q} inside\n")
    assert await list_lines(tmp_path, q) == [f"a:2:6:with {q} inside"]


async def test_queries_that_cannot_match_a_line_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\nb\n")
    assert await get_refusal(tmp_path, "") == "query is empty"
    for q in ("a\nb", "a\n--pre=sh", "\n", "a\0b"):
        assert await get_refusal(tmp_path, q) == "query contains a null character or a newline"
    assert await get_refusal(tmp_path, "\ud800") == "query is not valid Unicode"
    assert await get_refusal(tmp_path, "x" * 10_000_000) == "query is too long"
    assert await get_refusal(tmp_path / "gone", "x") == "the run's cwd cannot be opened"


async def test_nothing_outside_and_nothing_secret_is_found(tmp_path: Path) -> None:
    cwd = tmp_path / "run"
    cwd.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("needle outside\n")
    (cwd / "folder").symlink_to("../outside")
    (cwd / "file").symlink_to("../outside/file")
    (cwd / "zero").symlink_to("/dev/zero")
    (cwd / ".env").write_text("KEY=needle\n")
    os.mkfifo(cwd / "pipe")
    (cwd / "honest").write_text("needle inside\n")

    assert await list_lines(cwd, "needle") == ["honest:1:1:needle inside"]


async def test_a_link_swapped_in_while_we_search_shows_nothing(tmp_path: Path) -> None:
    cwd = tmp_path / "run"
    (cwd / "inner").mkdir(parents=True)
    (cwd / "inner" / "file").write_text("needle inside\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("needle outside\n")
    with swap_repeatedly(cwd / "inner", tmp_path / "outside"):
        found = {line for _ in range(15) for line in await list_lines(cwd, "needle")}
    # The folder is searched under either of its names, the link under none.
    assert found <= {"inner/file:1:1:needle inside", "inner.link/file:1:1:needle inside"}
    assert await list_lines(cwd, "needle") == ["inner/file:1:1:needle inside"]


async def test_only_so_many_matches_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n" * 150)
    (tmp_path / "b").write_text("x\n" * 50)
    assert len(await list_lines(tmp_path, "x")) == files.MOST_MATCHES
    (tmp_path / "c").write_text("x\n")

    result = await remote_ops.search_folder(str(tmp_path), "x")

    assert result.truncated
    assert len(result.matches) == files.MOST_MATCHES


async def test_long_lines_are_cut_and_strange_bytes_survive(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("needle" + "€" * 1_000_000)
    (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"needle \xff\n")

    result = await remote_ops.search_folder(str(tmp_path), "needle")

    assert msgspec.json.decode(msgspec.json.encode(result), type=files.SearchResult) == result
    by_path = {match.path: match.text for match in result.matches}
    assert by_path == {"long": "needle" + "€" * 164 + "…", "\\xff": "needle \ufffd"}


async def test_a_file_of_five_gigabytes_of_nothing_is_passed_over(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(5 * 1024**3)
    (tmp_path / "b").write_text("needle\n")
    assert await list_lines(tmp_path, "needle") == ["b:1:1:needle"]


@pytest.mark.parametrize("searcher", ["ours"], indirect=True)  # only Python's own expressions can take for ever
async def test_a_search_without_an_end_is_ended(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("a" * 60 + "!\n")
    run_id = f"run_{uuid4().hex}"

    async with asyncio.timeout(60):
        with pytest.raises(remote_ops.OperationRefused, match="the search took too long"):
            await remote_ops.search_folder(str(tmp_path), "(a|aa)+$", run_id=run_id, seconds=0.5)
    assert not orphans.has_marked_processes(run_id)


@pytest.mark.parametrize("searcher", ["ours"], indirect=True)
async def test_what_was_found_in_time_is_told_as_a_part(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("aaa\n")
    (tmp_path / "b").write_text("a" * 60 + "!\n")

    result = await remote_ops.search_folder(str(tmp_path), "(a|aa)+$", seconds=3.0)

    assert [match.path for match in result.matches] == ["a"]
    assert result.truncated


async def test_a_program_of_the_folder_is_not_taken_for_ripgrep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = tmp_path / "rg"
    trap.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(tmp_path))}/ran\n")
    trap.chmod(0o755)
    (tmp_path / ".ripgreprc").write_text("--pre=./rg\n")
    (tmp_path / "a").write_text("needle\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / ".ripgreprc"))
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")

    assert await list_lines(tmp_path, "needle") == ["a:1:1:needle"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("searcher", ["ours"], indirect=True)
async def test_what_a_searcher_claims_is_believed_only_when_the_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cwd = tmp_path / "run"
    cwd.mkdir()
    (cwd / "a").write_text("first\nneedle\n")
    (cwd / ".env").write_text("needle\n")
    (tmp_path / "outside").write_text("needle\n")
    (cwd / "link").symlink_to("../outside")
    claims = {
        "a": b"2:1:6:needle",
        "./a": b"2:1:6:another needle",
        "a/": b"2:2:7:eedle",
        "link": b"1:1:0:needle",
        "../outside": b"1:1:0:needle",
        ".env": b"1:1:0:needle",
        "gone": b"1:1:0:needle",
    }
    pretend(tmp_path, claims, monkeypatch)

    assert await list_lines(cwd, "needle") == ["a:2:1:needle"]


@pytest.mark.parametrize("searcher", ["ours"], indirect=True)
async def test_nothing_is_shown_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Path("/proc/self").resolve()
    pretend(tmp_path, {"comm": b"1:1:0:" + (process / "comm").read_bytes().rstrip()}, monkeypatch)

    assert await list_lines(process, "x") == []


def pretend(folder: Path, claims: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a program in ripgrep's place that has found just this."""
    (folder / "claims").write_bytes(b"".join(b"./%b\0%b\n" % (path.encode(), rest) for path, rest in claims.items()))
    programs = folder / "bin"
    programs.mkdir()
    (programs / "rg").write_text(f"#!/bin/sh\nexec /bin/cat '{folder}/claims'\n")
    (programs / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
