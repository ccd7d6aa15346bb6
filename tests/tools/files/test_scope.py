"""Every way out of a workspace is closed, and links that stay inside work."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from switchtower.tools import outcome
from switchtower.tools.files import files, scope


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "plain.txt").write_text("outside")
    return root


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resolve_path(root: Path, path: str) -> str:
    with scope.locate(str(root), path) as place:
        return place.path


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("src/main.py", "src/main.py"),
        ("./src//main.py", "src/main.py"),
        ("src/../src/main.py", "src/main.py"),
        ("src/..", "."),
        (".", "."),
        ("", "."),
        ("not_there", "not_there"),
    ],
)
def test_a_path_inside_leads_where_it_says(workspace: Path, path: str, leads_to: str) -> None:
    assert resolve_path(workspace, path) == leads_to


def test_an_absolute_path_into_the_workspace_is_taken_as_a_relative_one(workspace: Path) -> None:
    assert resolve_path(workspace, f"{workspace}/src/main.py") == "src/main.py"
    assert resolve_path(workspace, str(workspace)) == "."


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside/plain.txt",
        "src/../../outside/plain.txt",
        "../workspace/src/main.py",
        "/etc/passwd",
        "//etc/passwd",
        "{root}/../outside/plain.txt",
        "{root}-next/file",
        "src/main.py\0.txt",
    ],
)
@pytest.mark.parametrize("make_folders", [False, True])
def test_a_path_that_leaves_is_refused(workspace: Path, path: str, make_folders: bool) -> None:
    with (
        pytest.raises(scope.PathRefused) as refusal,
        scope.locate(str(workspace), path.format(root=workspace), make_folders=make_folders),
    ):
        pass
    assert refusal.value.type is outcome.ToolErrorType.EDIT_GUARD_BLOCKED


@pytest.mark.parametrize("target", ["../outside", "/etc", "src/../../outside", "hop", "."])
@pytest.mark.parametrize("rest", ["plain.txt", "../outside/plain.txt", ""])
def test_a_link_that_leaves_is_refused_wherever_it_stands(workspace: Path, target: str, rest: str) -> None:
    (workspace / "hop").symlink_to("../outside")
    (workspace / "way").symlink_to(target)
    path = f"way/{rest}"
    if target == ".":
        path = f"way/../{rest}"

    with pytest.raises(scope.PathRefused), scope.locate(str(workspace), path):
        pass


def test_links_that_stay_inside_are_followed(workspace: Path) -> None:
    (workspace / "relative").symlink_to("src/main.py")
    (workspace / "absolute").symlink_to(workspace / "src")
    (workspace / "src" / "back").symlink_to("../relative")

    assert resolve_path(workspace, "relative") == "src/main.py"
    assert resolve_path(workspace, "absolute/main.py") == "src/main.py"
    assert resolve_path(workspace, "absolute/back") == "src/main.py"


def test_a_circle_of_links_is_refused(workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")

    with pytest.raises(scope.PathRefused), scope.locate(str(workspace), "a"):
        pass


def test_the_workspace_itself_may_be_reached_through_a_link(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(workspace)

    assert resolve_path(tmp_path / "alias", "src/main.py") == "src/main.py"
    assert resolve_path(tmp_path / "alias", f"{workspace}/src/main.py") == "src/main.py"


@pytest.mark.parametrize("name", [".env", ".env.local", "server.pem", "id_rsa", ".ssh/config", ".aws/credentials", ".SSH/Config"])
def test_a_file_of_secrets_is_refused_by_its_own_name_and_through_a_link(workspace: Path, name: str) -> None:
    (workspace / name).parent.mkdir(exist_ok=True)
    (workspace / name).write_text("hush")
    (workspace / "innocent.txt").symlink_to(name)
    (workspace / "folder").symlink_to(Path(name).parent)

    for path in (name, "innocent.txt", f"folder/{Path(name).name}", f"src/../{name}", f"{workspace}/{name}"):
        with pytest.raises(scope.PathRefused), scope.locate(str(workspace), path):
            pass


def test_a_workspace_inside_a_folder_of_secrets_gives_nothing_away(tmp_path: Path) -> None:
    root = tmp_path / ".ssh" / "project"
    root.mkdir(parents=True)
    (root / "notes.txt").write_text("hush")

    with pytest.raises(scope.PathRefused), scope.locate(str(root), "notes.txt"):
        pass


def test_a_workspace_whose_own_name_looks_like_a_secret_is_usable(tmp_path: Path) -> None:
    root = tmp_path / "id_service"
    root.mkdir()
    (root / "notes.txt").write_text("open")

    assert resolve_path(root, ".") == "."
    assert resolve_path(root, "notes.txt") == "notes.txt"


def test_a_missing_workspace_is_reported_as_unreachable(tmp_path: Path) -> None:
    with pytest.raises(outcome.ToolFailed) as failed, scope.locate(str(tmp_path / "gone"), "file"):
        pass
    assert failed.value.type is outcome.ToolErrorType.SANDBOX_UNREACHABLE


def test_no_folder_is_left_open(workspace: Path) -> None:
    (workspace / "out").symlink_to("/etc")
    before = open_descriptors()
    for path in ("src/main.py", "src/../../x", "out/passwd", "src/main.py/below"):
        try:
            with scope.locate(str(workspace), path):
                pass
        except (scope.PathRefused, OSError):
            continue
    assert open_descriptors() == before


@contextmanager
def run_in_other_process(act: Callable[[], None]) -> Iterator[None]:
    """Another process in the workspace, doing this over and over."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            act()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_link_that_is_turned_outward_again_and_again_never_lets_a_read_or_write_out(workspace: Path, tmp_path: Path) -> None:
    (workspace / "src" / "plain.txt").write_text("inside")
    (workspace / "door").symlink_to("src")

    def turn() -> None:
        for target in ("src", "../outside"):
            (workspace / "next").symlink_to(target)
            (workspace / "next").rename(workspace / "door")

    seen: set[str] = set()
    refused = 0
    with run_in_other_process(turn):
        while seen <= {"inside"} and not (seen and refused > 50):
            try:
                seen.add(files.read_content(str(workspace), "door/plain.txt").text)
                files.write_content(str(workspace), "door/plain.txt", "inside")
            except scope.PathRefused:
                refused += 1

    assert seen == {"inside"}
    assert (tmp_path / "outside" / "plain.txt").read_text() == "outside"


SWAPPER = """
import ctypes, sys
AT_FDCWD, RENAME_EXCHANGE = -100, 2
libc = ctypes.CDLL(None, use_errno=True)
print("ready", flush=True)
while True:
    if libc.renameat2(AT_FDCWD, sys.argv[1].encode(), AT_FDCWD, sys.argv[2].encode(), RENAME_EXCHANGE):
        sys.exit(ctypes.get_errno())
"""


def test_a_folder_swapped_for_a_link_in_the_blink_of_an_eye_never_lets_a_read_out(workspace: Path) -> None:
    """Between the look at a name and its use it changes into a link: only the use itself can tell."""
    door, bait = workspace / "door", workspace / "bait"
    door.mkdir()
    (door / "plain.txt").write_text("inside")
    bait.symlink_to("../outside")
    seen: set[str] = set()
    refused = 0
    with subprocess.Popen([sys.executable, "-c", SWAPPER, door, bait], stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == b"ready\n"
        try:
            while seen <= {"inside"} and not (seen and refused > 1500):
                try:
                    seen.add(files.read_content(str(workspace), "door/plain.txt").text)
                except outcome.ToolFailed:
                    refused += 1
            assert swapper.poll() is None, "somebody was swapping all the time"
        finally:
            swapper.kill()

    assert seen == {"inside"}
