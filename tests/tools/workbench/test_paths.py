"""No path leads out of the run's folder, by whichever door it comes in."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.workbench.swapping import swap_repeatedly

from switchtower.tools import remote_ops

OUTSIDE = "what lies outside"

Door = Callable[[str, str], Awaitable[object]]


async def write_something(cwd: str, path: str) -> object:
    return await remote_ops.write_file(cwd, path, "from far away")


DOORS = {"read": remote_ops.read_file, "list": remote_ops.list_folder, "write": write_something}


@pytest.fixture(params=DOORS)
def path_operation(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    cwd = tmp_path / "run"
    (cwd / "inner").mkdir(parents=True)
    (cwd / "inner" / "file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text(OUTSIDE)
    return cwd


async def get_refusal(work: Awaitable[object]) -> str:
    async with asyncio.timeout(60):
        with pytest.raises(remote_ops.OperationRefused) as caught:
            await work
    assert str(caught.value) == caught.value.message
    return caught.value.message


def make_outside_file(cwd: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() for entry in (cwd.parent / "outside").iterdir()}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/passwd", "path must be relative"),
        ("//etc/passwd", "path must be relative"),
        ("/", "path must be relative"),
        ("/proc/self/root/etc/passwd", "path must be relative"),
        ("/../outside/file", "path must be relative"),
        ("..", "path contains .."),
        ("../outside/file", "path contains .."),
        ("../../../../../../etc/passwd", "path contains .."),
        ("inner/../../outside/file", "path contains .."),
        ("inner/../inner/file", "path contains .."),
        ("./../outside", "path contains .."),
        ("inner/..", "path contains .."),
        ("inner/file\0", "path contains a null character"),
        ("\0", "path contains a null character"),
        ("\ud800", "path is not valid Unicode"),
        ("inner/\udcff", "path is not valid Unicode"),
        ("a/" * 2049, "path is too long"),
        ("x" * 300, "path is too long"),
        ("x" * 10_000_000, "path is too long"),
        ("../" * 2000 + "\ud800", "path is not valid Unicode"),
        (".env", "path may hold secrets"),
        ("inner/.ssh/id_rsa", "path may hold secrets"),
    ],
)
async def test_a_path_that_its_words_give_away_is_refused_at_each_door(
    path_operation: Door, cwd: Path, path: str, message: str
) -> None:
    assert await get_refusal(path_operation(str(cwd), path)) == message
    assert make_outside_file(cwd) == {"file": OUTSIDE}


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "inner/../..", "a\0b", "\ud800", ".env"])
async def test_a_path_can_be_checked_before_anybody_is_asked(cwd: Path, path: str) -> None:
    with pytest.raises(remote_ops.OperationRefused):
        remote_ops.check_path(str(cwd), path)
    remote_ops.check_path(str(cwd), "inner/new/file")


async def test_an_absolute_path_is_refused_even_when_it_leads_inside(path_operation: Door, cwd: Path) -> None:
    assert await get_refusal(path_operation(str(cwd), str(cwd / "inner" / "file"))) == "path must be relative"


async def test_an_empty_path_is_no_file_but_the_folder_itself_when_listed(cwd: Path) -> None:
    assert await get_refusal(remote_ops.read_file(str(cwd), "")) == "path is empty"
    assert await get_refusal(write_something(str(cwd), "")) == "path is empty"
    assert (await remote_ops.list_folder(str(cwd), "")).path == "."


@pytest.mark.parametrize("target", ["../outside", "{outside}", "inner/../../outside", "hop", "/proc/self/root{outside}"])
async def test_no_link_to_a_folder_leads_out(path_operation: Door, cwd: Path, target: str) -> None:
    (cwd / "hop").symlink_to("../outside")
    (cwd / "link").symlink_to(target.format(outside=cwd.parent / "outside"))

    assert await get_refusal(path_operation(str(cwd), "link/file")) == "path escapes run cwd"
    assert await get_refusal(path_operation(str(cwd), "link")) == "path escapes run cwd"
    assert await get_refusal(path_operation(str(cwd), "link/new/file")) == "path escapes run cwd"
    assert make_outside_file(cwd) == {"file": OUTSIDE}


@pytest.mark.parametrize(
    "target", ["../outside/file", "{outside}/file", "../outside/not there yet", "/dev/zero", "/dev/null", "/"]
)
async def test_no_link_to_a_file_leads_out(path_operation: Door, cwd: Path, target: str) -> None:
    (cwd / "link").symlink_to(target.format(outside=cwd.parent / "outside"))

    assert await get_refusal(path_operation(str(cwd), "link")) == "path escapes run cwd"
    assert make_outside_file(cwd) == {"file": OUTSIDE}


async def test_links_that_go_in_circles_come_to_an_end(path_operation: Door, cwd: Path) -> None:
    (cwd / "one").symlink_to("two")
    (cwd / "two").symlink_to("one")
    assert await get_refusal(path_operation(str(cwd), "one")) == "path escapes run cwd"


async def test_links_that_stay_inside_are_followed(cwd: Path) -> None:
    (cwd / "link").symlink_to("inner")
    (cwd / "absolute").symlink_to(cwd / "inner" / "file")

    assert (await remote_ops.read_file(str(cwd), "link/file")).content == "inside"
    assert [entry.name for entry in (await remote_ops.list_folder(str(cwd), "link")).entries] == ["file"]
    await remote_ops.write_file(str(cwd), "absolute", "changed")
    assert (cwd / "inner" / "file").read_text() == "changed"
    assert (cwd / "absolute").is_symlink()


async def test_a_run_whose_folder_is_gone_or_no_folder_is_told_so(path_operation: Door, cwd: Path) -> None:
    assert await get_refusal(path_operation(str(cwd / "gone"), "file")) == "the run's cwd cannot be opened"
    assert await get_refusal(path_operation(str(cwd / "inner" / "file"), "file")) == "the run's cwd cannot be opened"


async def test_a_run_in_the_topmost_folder_does_not_show_the_daemons_environment() -> None:
    for path in ("proc/self/environ", f"proc/{os.getpid()}/environ", "proc/self/root/proc/self/environ"):
        assert await get_refusal(remote_ops.read_file("/", path)) == "path may hold secrets"


@pytest.mark.parametrize("swapped", ["inner", "inner/file"])
async def test_a_link_swapped_in_while_we_read_shows_nothing(cwd: Path, swapped: str) -> None:
    name = cwd / swapped
    outside = cwd.parent / "outside"
    seen: set[str] = set()
    reads = 0
    with swap_repeatedly(name, outside if swapped == "inner" else outside / "file"):
        async with asyncio.timeout(60):
            while reads < 300 or len(seen) < 2:
                reads += 1
                try:
                    seen.add((await remote_ops.read_file(str(cwd), "inner/file")).content)
                except remote_ops.OperationRefused as refused:
                    # A folder that turns into a link between the look and the step is no folder to the kernel.
                    seen.add(refused.message.replace("not a directory", "path escapes run cwd"))
    assert seen == {"inside", "path escapes run cwd"}


async def test_a_link_swapped_in_while_we_list_shows_nothing(cwd: Path) -> None:
    (cwd.parent / "outside" / "file").rename(cwd.parent / "outside" / "foreign")
    seen: set[str] = set()
    lists = 0
    with swap_repeatedly(cwd / "inner", cwd.parent / "outside"):
        async with asyncio.timeout(60):
            while lists < 300 or len(seen) < 2:
                lists += 1
                try:
                    seen.update(entry.name for entry in (await remote_ops.list_folder(str(cwd), "inner")).entries)
                except remote_ops.OperationRefused:
                    seen.add("refused")
    assert seen == {"file", "refused"}


async def test_a_link_swapped_in_while_we_write_gets_nothing(cwd: Path) -> None:
    outcomes: set[str] = set()
    writes = 0
    with swap_repeatedly(cwd / "inner", cwd.parent / "outside"):
        async with asyncio.timeout(60):
            while writes < 200 or len(outcomes) < 2:
                writes += 1
                try:
                    await remote_ops.write_file(str(cwd), "inner/new", f"{writes}")
                    outcomes.add("written")
                except remote_ops.OperationRefused:
                    outcomes.add("refused")
    assert make_outside_file(cwd) == {"file": OUTSIDE}
    assert outcomes == {"written", "refused"}


@given(path=st.text(alphabet=st.sampled_from("./a~\\\0-: \n\ud800é"), max_size=12))
def test_whatever_the_path_a_read_of_nothing_inside_is_refused(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-path"
    (folder / "run").mkdir(parents=True, exist_ok=True)
    (folder / "a").write_text(OUTSIDE)
    with pytest.raises(remote_ops.OperationRefused):
        asyncio.run(remote_ops.read_file(str(folder / "run"), path))
