"""Commands in a real bubblewrap: what they can change, see and reach, and that nothing of them is left."""

import asyncio
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.tools.running.watching import PidReports, find_processes_with, is_alive

from switchtower.core import errors
from switchtower.tools.processes import commands, orphans
from switchtower.tools.sandboxes import sandbox

TIMEOUT = 60
OWN_FOLDERS = ("/tmp", "/var/tmp", "/run")
WHY_NOT = sandbox.probe_sandbox("bubblewrap")
with_bubblewrap = pytest.mark.skipif(WHY_NOT is not None, reason=f"no bubblewrap here: {WHY_NOT}")

Run = Callable[..., Coroutine[Any, Any, commands.FinishedCommand]]


@pytest.fixture
def run_id() -> Iterator[str]:
    run_id = f"run_{uuid4().hex}"
    yield run_id
    commands.kill_marked(run_id)


@pytest.fixture
def disk(pytestconfig: pytest.Config) -> Iterator[Path]:
    """A folder outside of `/tmp`, `/var/tmp` and `/run`: a sandbox has its own there, and would write to that."""
    around = [pytestconfig.rootpath, Path(pwd.getpwuid(os.getuid()).pw_dir), Path("/srv"), Path("/opt")]
    usable = [base for base in around if os.access(base, os.W_OK) and not any(map(base.is_relative_to, OWN_FOLDERS))]
    if not usable:
        pytest.skip("each folder that can be written lies where a sandbox has folders of its own")
    base = usable[0] / ".pytest_cache" / "sandbox"
    folder = base / uuid4().hex[:8]
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)
    if usable[0] != pytestconfig.rootpath:
        for made in (base, base.parent):
            with suppress(OSError):  # another test is in it
                made.rmdir()


@pytest.fixture
def home(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, with a workspace in it."""
    home = disk / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "TOWER_HOME", "TOWER_SOCKET", "PUSHD_SOCKET"):
        monkeypatch.delenv(variable, raising=False)
    return home


@pytest.fixture
def run_sandboxed(home: Path, run_id: str) -> Run:
    async def run(
        command: str, *, workspace: Path = home / "work", network: bool = False, **options: Any
    ) -> commands.FinishedCommand:
        options = {"cwd": str(workspace), "timeout_s": TIMEOUT, "grace_s": 0.1, **options}
        chosen = sandbox.choose_sandbox("bubblewrap", network=network)
        async with asyncio.timeout(TIMEOUT):
            return await commands.run_command(command, run_id=run_id, sandbox=chosen, workspace=str(workspace), **options)

    return run


# Which one


def test_local_changes_nothing() -> None:
    assert sandbox.choose_sandbox("local") is sandbox.LOCAL
    assert sandbox.probe_sandbox("local") is None
    assert sandbox.LOCAL.wrap(["echo", "$x"], "/workspace") == ["echo", "$x"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("modal", "`modal` is not configured; hint: use `bubblewrap`"),
        ("docker", "there is no sandbox `docker`; hint: use one of `local`, `bubblewrap`, `modal`"),
        ("", "there is no sandbox ``; hint: use one of"),
        ("Local", "there is no sandbox `Local`"),
    ],
)
def test_a_sandbox_that_cannot_be_had_is_refused_with_a_remedy(name: str, message: str) -> None:
    with pytest.raises(errors.SandboxUnavailable) as refused:
        sandbox.choose_sandbox(name)

    assert message in refused.value.message
    assert message in (sandbox.probe_sandbox(name) or "")


PROBE = "from switchtower.tools.sandboxes import sandbox; print(sandbox.probe_sandbox('bubblewrap'))"


def probe_with(tools: Path) -> str:
    """By a process that finds only these programs."""
    variables = {**os.environ, "PATH": str(tools)}
    return subprocess.run([sys.executable, "-c", PROBE], env=variables, capture_output=True, text=True, check=True).stdout


def test_a_machine_without_bubblewrap_is_told_how_to_get_it(tmp_path: Path) -> None:
    assert "`bwrap` is not installed; hint: install it, as with `apt install bubblewrap`" in probe_with(tmp_path)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "setting up uid map: Permission denied"),
        ("exit 3", "exit code 3"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_a_bubblewrap_that_does_not_work_is_refused_with_what_it_says(script: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bwrap").chmod(0o755)

    told = probe_with(tmp_path)

    assert f"`bwrap` does not work here ({'bwrap: ' if 'uid' in script else ''}{complaint}); hint: " in told


def test_a_bubblewrap_that_cannot_be_started_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("#!/no/such/interpreter\n")
    (tmp_path / "bwrap").chmod(0o755)

    assert "`bwrap` cannot be started: " in probe_with(tmp_path)


@with_bubblewrap
@pytest.mark.parametrize("workspace", ["/", "/proc", "/proc/self", "/dev/shm", "/sys/kernel", "/run"])
def test_no_sandbox_is_built_around_the_systems_own_folders(workspace: str) -> None:
    with pytest.raises(errors.SandboxUnavailable, match="cannot be a workspace"):
        sandbox.choose_sandbox("bubblewrap").wrap(["true"], workspace)


# What can be changed


@with_bubblewrap
async def test_what_is_written_in_the_workspace_lands_there_and_belongs_to_the_user(run_sandboxed: Run, home: Path) -> None:
    finished = await run_sandboxed("mkdir -p a/b && echo hello > a/b/file && pwd && touch a/b/script && chmod +x a/b/script")

    assert (finished.exit_code, finished.output) == (0, f"{home}/work\n")
    written = home / "work/a/b/file"
    assert written.read_text() == "hello\n"
    assert (written.stat().st_uid, written.stat().st_gid) == (os.getuid(), os.getgid())
    assert os.access(home / "work/a/b/script", os.X_OK)


@with_bubblewrap
async def test_nothing_else_can_be_written(run_sandboxed: Run, home: Path, disk: Path) -> None:
    (home / "notes").write_text("before")
    (home / "work/link").symlink_to(home / "notes")
    inside = [home / "new", home / "notes", "link", "../up"]
    outside = [disk / "beside", "/etc/tower-test", "/usr/tower-test", "/tower-test"]
    for place in (*inside, *outside):
        assert (await run_sandboxed(f"echo changed > {place}")).exit_code != 0, place
    assert (await run_sandboxed(f"rm {home}/notes || mkdir {home}/folder || chmod 777 {home}")).exit_code != 0

    assert (home / "notes").read_text() == "before"
    assert sorted(entry.name for entry in home.iterdir()) == ["notes", "work"]
    assert not any(Path(place).exists() for place in outside)


@with_bubblewrap
async def test_temporary_folders_are_its_own_and_gone_with_it(run_sandboxed: Run, home: Path) -> None:
    name = f"tower-test-{uuid4().hex}"
    folders = '/tmp /var/tmp /dev/shm "$TMPDIR" "$XDG_CACHE_HOME"'
    finished = await run_sandboxed(f"for folder in {folders}; do mkdir -p $folder && echo x > $folder/{name} || exit 1; done")

    assert finished.exit_code == 0, finished.output
    assert not any(Path(folder, name).exists() for folder in ("/tmp", "/var/tmp", "/dev/shm"))
    assert (await run_sandboxed(f"ls /tmp/{name}")).exit_code != 0


@with_bubblewrap
@pytest.mark.skipif(os.getuid() != 0, reason="only root could change the kernel's settings in the first place")
async def test_not_even_root_can_change_the_kernels_settings(run_sandboxed: Run) -> None:
    setting = "/proc/sys/kernel/printk"
    assert "Read-only" in (await run_sandboxed(f"cat {setting} > /tmp/now; cat /tmp/now > {setting}")).output
    assert "Read-only" in (await run_sandboxed("mkdir /sys/fs/cgroup/tower-test")).output
    assert (await run_sandboxed("mount -o remount,rw /; umount /proc/sys")).exit_code != 0


@with_bubblewrap
async def test_a_program_may_begin_in_a_folder_of_the_workspace(run_sandboxed: Run, home: Path) -> None:
    (home / "work/inner").mkdir()

    finished = await run_sandboxed("pwd; touch here ../there", cwd=str(home / "work/inner"))

    assert finished.output == f"{home}/work/inner\n"
    assert (home / "work/inner/here").exists()
    assert (home / "work/there").exists()


# What can be seen and reached


@with_bubblewrap
async def test_the_places_of_secrets_look_empty(run_sandboxed: Run, home: Path) -> None:
    secret = f"secret-{uuid4().hex}"
    folders = [".ssh", ".aws", ".gnupg", ".docker", ".kube", ".config/gh", ".push/run", ".local/share/switchtower"]
    files = [".netrc", ".git-credentials", ".npmrc", ".pypirc", ".bash_history", ".config/git/credentials"]
    for folder in folders:
        (home / folder).mkdir(parents=True)
        (home / folder / "key").write_text(secret)
    for file in files:
        (home / file).parent.mkdir(exist_ok=True)
        (home / file).write_text(secret)
    (home / ".gitconfig").write_text("visible")

    finished = await run_sandboxed(
        "cd; cat .gitconfig; grep -r secret- . 2>/dev/null; cat .netrc && ls -A .ssh && touch .ssh/key"
    )

    assert secret not in finished.output
    assert finished.output.startswith("visible")
    assert finished.exit_code != 0
    assert (home / ".ssh/key").read_text() == secret


@with_bubblewrap
async def test_secrets_behind_links_and_inside_the_workspace_are_hidden_too(run_sandboxed: Run, home: Path, disk: Path) -> None:
    elsewhere = disk / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "key").write_text("hush")
    (home / ".ssh").symlink_to(elsewhere)
    (home / ".aws").mkdir()
    (home / ".aws/credentials").write_text("hush")

    finished = await run_sandboxed("cat .ssh/* .aws/* work/../.aws/credentials; touch fine", workspace=home)

    assert "hush" not in finished.output
    assert (home / "fine").exists()
    assert (home / ".aws/credentials").read_text() == "hush"


@with_bubblewrap
async def test_the_towers_own_home_is_hidden_and_a_workspace_inside_it_is_not(
    run_sandboxed: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tower, extra = home / "tower", home / "extra"
    inside = tower / "data/worktrees/one"
    inside.mkdir(parents=True)
    extra.mkdir()
    (tower / "data/owner.token").write_text("hush")
    (extra / "token").write_text("hush")
    monkeypatch.setenv("TOWER_HOME", str(tower))
    sandbox.configure(hide=[extra])
    try:
        finished = await run_sandboxed(
            f"cat {tower}/data/owner.token {extra}/token; touch done && touch ../beside", workspace=inside
        )
    finally:
        sandbox.configure()

    assert "hush" not in finished.output
    assert finished.exit_code != 0
    assert sorted(entry.name for entry in inside.iterdir()) == ["done"]
    assert sorted(entry.name for entry in inside.parent.iterdir()) == ["one"]


@with_bubblewrap
async def test_sockets_of_other_services_cannot_be_reached(
    run_sandboxed: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/docker.sock")
    (home / ".push/run").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / ".push/run/pushd.sock"))
        listener.listen()
        python = str(Path(sys.executable).resolve())  # that of a virtual environment may lie below `/tmp`
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{home}/.push/run/pushd.sock')"

        finished = await run_sandboxed(f'ls -A /run; echo "[$SSH_AUTH_SOCK$DOCKER_HOST]"; {shlex.quote(python)} -c "{connect}"')

    assert "[]\n" in finished.output
    assert "docker" not in finished.output
    assert "FileNotFoundError" in finished.output


@with_bubblewrap
async def test_the_network_is_there_only_when_it_is_allowed(run_sandboxed: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"

        assert "Connection refused" in (await run_sandboxed(connect)).output
        assert (await run_sandboxed(connect, network=True)).output == "connected\n"


@with_bubblewrap
async def test_other_processes_are_out_of_sight(run_sandboxed: Run) -> None:
    finished = await run_sandboxed(f"kill -0 {os.getpid()}; ls -d /proc/[0-9]* | wc -l")

    assert "No such process" in finished.output
    assert int(finished.output.splitlines()[-1]) < 10


# How it ends


@with_bubblewrap
@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("no-such-program", 127)])
async def test_exit_codes_pass_through(run_sandboxed: Run, command: str, code: int) -> None:
    assert (await run_sandboxed(command)).exit_code == code


@with_bubblewrap
async def test_what_goes_into_the_background_ends_with_the_command(run_sandboxed: Run, home: Path, run_id: str) -> None:
    token = f"token-{uuid4().hex}"
    background = f"bash -c 'trap \"\" TERM HUP; : {token}; echo $$ > {{}}; sleep 1000; :'"
    command = " ".join(f"setsid {background.format(f'pid{number}')} >/dev/null 2>&1 &" for number in range(3))
    finished = await run_sandboxed(f"{command} while [ ! -s pid0 -o ! -s pid1 -o ! -s pid2 ]; do sleep 0.01; done; exit 5")
    assert finished.exit_code == 5

    async with asyncio.timeout(TIMEOUT):
        while find_processes_with(token) or orphans.has_marked_processes(
            run_id
        ):  # the kernel takes a moment to end a whole namespace
            await asyncio.sleep(0.01)


@with_bubblewrap
async def test_a_cancelled_command_leaves_nothing(run_sandboxed: Run, home: Path, run_id: str) -> None:
    token = f"token-{uuid4().hex}"
    reports = PidReports(home / "work/reports")
    deaf = f"bash -c 'trap \"\" TERM; : {token}; echo $$ > reports; sleep 1000; :'"
    running = asyncio.create_task(run_sandboxed(f"setsid {deaf} & env -i setsid {deaf} & {deaf}"))
    await reports.wait_for_pids(3, within=TIMEOUT)
    assert len(find_processes_with(token)) >= 3

    running.cancel()
    await asyncio.wait([running])

    assert find_processes_with(token) == {}
    assert not orphans.has_marked_processes(run_id)
    reports.close()


@with_bubblewrap
async def test_a_program_may_clean_up_when_it_is_told_to_stop(run_sandboxed: Run, home: Path) -> None:
    reports = PidReports(home / "work/reports")
    (home / "work/lock").touch()
    command = "trap 'rm lock; exit' TERM; echo $$ > reports; while :; do sleep 0.01; done"
    running = asyncio.create_task(run_sandboxed(command, grace_s=10))
    await reports.wait_for_pids(1, within=TIMEOUT)

    running.cancel()
    await asyncio.wait([running])

    assert not (home / "work/lock").exists()
    reports.close()


@with_bubblewrap
async def test_everything_inside_dies_with_a_killed_daemon(home: Path, run_id: str) -> None:
    reports = PidReports(home / "work/reports")
    program = (
        "import asyncio, sys; from switchtower.tools.processes import commands; from switchtower.tools.sandboxes import sandbox;"
        "asyncio.run(commands.run_command(sys.argv[1], cwd=sys.argv[2], run_id=sys.argv[3], timeout_s=100,"
        " sandbox=sandbox.choose_sandbox('bubblewrap')))"
    )
    token = f"token-{uuid4().hex}"
    command = f"setsid bash -c ': {token}; echo $$ > reports; sleep 1000; :' & sleep 1000"
    daemon = subprocess.Popen([sys.executable, "-c", program, command, str(home / "work"), run_id])
    await reports.wait_for_pids(1, within=TIMEOUT)
    daemon.kill()
    daemon.wait()

    async with asyncio.timeout(TIMEOUT):
        while find_processes_with(token):
            await asyncio.sleep(0.01)
    assert not is_alive(daemon.pid)
    reports.close()


# Git


def run_git(*words: str, cwd: Path) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *identity, *words], cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


COMMIT = "git -c user.name=T -c user.email=t@example.org commit -q -am changed"


@pytest.fixture
def repository(home: Path) -> Path:
    repository = home / "repository"
    repository.mkdir()
    run_git("init", "-q", cwd=repository)
    (repository / "file").write_text("one\n")
    run_git("add", ".", cwd=repository)
    run_git("commit", "-q", "-m", "first", cwd=repository)
    return repository


@with_bubblewrap
async def test_commits_work_and_what_makes_git_run_programs_cannot_be_changed(run_sandboxed: Run, repository: Path) -> None:
    finished = await run_sandboxed(
        f"echo two >> file && {COMMIT} && git log --oneline | wc -l && git gc -q", workspace=repository
    )
    assert (finished.exit_code, finished.output) == (0, "2\n")
    assert run_git("log", "-1", "--format=%s", cwd=repository) == "changed"

    for attempt in (
        "git config core.fsmonitor ./evil",
        "echo x >> .git/config",
        "rm -f .git/config",
        "mv .git elsewhere",
        "echo x > .git/hooks/post-commit",
        "mv .git/hooks .git/old",
    ):
        assert (await run_sandboxed(attempt, workspace=repository)).exit_code != 0, attempt
    assert "fsmonitor" not in (repository / ".git/config").read_text()
    assert run_git("status", "--porcelain", cwd=repository) == ""


@with_bubblewrap
async def test_hooks_cannot_appear_where_there_were_none(run_sandboxed: Run, repository: Path) -> None:
    for hook in (repository / ".git/hooks").iterdir():
        hook.unlink()
    (repository / ".git/hooks").rmdir()

    assert (await run_sandboxed("mkdir -p .git/hooks && echo x > .git/hooks/post-commit", workspace=repository)).exit_code != 0
    assert not list((repository / ".git/hooks").glob("*"))


@with_bubblewrap
async def test_a_worktree_can_be_committed_in_and_the_rest_of_its_repository_only_read(
    run_sandboxed: Run, repository: Path, home: Path
) -> None:
    worktree = home / "worktree"
    run_git("worktree", "add", "-q", "-b", "aside", str(worktree), cwd=repository)

    finished = await run_sandboxed(f"echo two >> file && {COMMIT} && git status --porcelain", workspace=worktree)

    assert (finished.exit_code, finished.output) == (0, "")
    assert run_git("log", "-1", "--format=%s", "aside", cwd=repository) == "changed"
    for attempt in (
        f"echo x >> {repository}/file",
        f"echo x >> {repository}/.git/config",
        f"echo x > {repository}/.git/hooks/post-commit",
        f"echo x > {repository}/.git/HEAD",
        f"echo /evil > {repository}/.git/worktrees/worktree/commondir",
        "rm .git && echo gitdir: /evil > .git",
        "git config core.fsmonitor ./evil",
    ):
        assert (await run_sandboxed(attempt, workspace=worktree)).exit_code != 0, attempt
    assert run_git("status", "--porcelain", cwd=worktree) == ""


@with_bubblewrap
async def test_a_pointer_that_was_made_up_opens_nothing(run_sandboxed: Run, repository: Path, home: Path) -> None:
    """A person who can write in the workspace can write any `.git` there."""
    work = home / "work"
    fake = home / "fake/worktrees/work"
    fake.mkdir(parents=True)
    for folder in (home / "fake/objects", home / "fake/refs"):
        folder.mkdir()
    (fake / "commondir").write_text("../..\n")
    (fake / "gitdir").write_text(f"{repository}/.git\n")  # it knows another workspace, not this one
    for pointer in (fake, repository / ".git", home, "/", "../fake/worktrees/work", home / "work"):
        (work / ".git").unlink(missing_ok=True)
        (work / ".git").write_text(f"gitdir: {pointer}\n")
        finished = await run_sandboxed(f"touch {home}/fake/objects/x {repository}/.git/x {home}/x; echo; ls")
        assert finished.output.count("Read-only file system") == 3, pointer
    (work / ".git").unlink()
    os.mkfifo(work / ".git")
    assert (await run_sandboxed("true")).exit_code == 0


@with_bubblewrap
async def test_a_part_of_a_repository_can_read_all_of_it(run_sandboxed: Run, repository: Path) -> None:
    (repository / "part").mkdir()

    finished = await run_sandboxed(
        "git log --format=%s && cat ../file && echo x > new && echo x > ../new", workspace=repository / "part"
    )

    assert finished.output.startswith("first\none\n")
    assert finished.exit_code != 0
    assert (repository / "part/new").exists()
    assert not (repository / "new").exists()


# What people are told


def test_forbidden_user_namespaces_come_with_the_command_that_allows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = tmp_path / "sys"
    (settings / "kernel").mkdir(parents=True)
    monkeypatch.setattr(sandbox, "_SYSCTL", settings)
    for name, value, remedy in (
        ("apparmor_restrict_unprivileged_userns", "1", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
        ("unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    ):
        (settings / "kernel" / name).write_text(f"{value}\n")
        assert f"; hint: user namespaces are forbidden; `{remedy}` allows them" in (sandbox.probe_sandbox("bubblewrap") or "")
        (settings / "kernel" / name).unlink()
