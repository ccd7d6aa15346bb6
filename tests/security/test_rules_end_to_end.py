"""Ways around the rules that were once open, against a real daemon with real git, tar and make: each is asked about, and
nothing has run. The model's end is the demo model, which calls the tool that it is told to call."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.schema_check import check

from switchtower.testing.push_client import PushClient, ReceivedEvent

RULES = ("git *", "tar *", "cat *", "ls *", "grep *")
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def daemon() -> Iterator[ManagedDaemon]:
    started = ManagedDaemon()
    rules = "".join(f'[[rules]]\neffect = "allow"\ncommand = "{rule}"\n' for rule in RULES)
    (started.home / "config.toml").write_text(rules)
    try:
        yield started.start()
    finally:
        started.discard()


@pytest.fixture
async def client(daemon: ManagedDaemon) -> AsyncIterator[PushClient]:
    async with await PushClient.connect_socket(daemon.socket, check=check, timeout=TIMEOUT) as connected:
        yield connected


@pytest.fixture
def repository() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ws-", dir="/tmp"))
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / "a.txt").write_text("foo\n")
    subprocess.run(["git", "add", "a.txt"], cwd=folder, check=True)
    yield folder
    shutil.rmtree(folder)


async def wait_for_question(client: PushClient, session_id: str, text: str, **fields: object) -> ReceivedEvent | None:
    """The question that a message leads to, which is denied; None when it led to none."""
    payload = {"sessionId": session_id, "clientMessageId": f"msg_{uuid4().hex}", "text": text, **fields}
    await client.request_payload("send_user_message", payload, session_id=session_id)
    asked: ReceivedEvent | None = None
    async with asyncio.timeout(TIMEOUT):
        while (event := await client.next_event()).type != "run_complete":
            if event.type == "approval_required":
                asked = event
                await client.decide(event, "deny")
    return asked


async def start(client: PushClient, folder: Path, policy: str = "ask") -> str:
    return (await client.start_session(folder, policy=policy)).session_id


@pytest.mark.parametrize(
    "command",
    [
        "git grep --open='touch PWNED #' foo",
        "git grep '--op=touch PWNED #' foo",
        "git grep --open-files-in-page='touch PWNED #' foo",
        "git grep -O'touch PWNED #' foo",
        "tar cf x.tar --checkpoint=1 --checkpoint-ac='exec=touch PWNED' a.txt",
        "tar cf x.tar a.txt --to-com='touch PWNED'",
        "git -c alias.x='!touch PWNED' x",
        "git -c core.fsmonitor='touch PWNED' status",
        "git diff --ext",
        "git log --outp=PWNED",
    ],
)
async def test_an_option_that_runs_something_is_asked_about_also_when_it_is_shortened(
    client: PushClient, repository: Path, command: str
) -> None:
    asked = await wait_for_question(client, await start(client, repository), f"run: {command}")

    assert asked is not None
    assert not (repository / "PWNED").exists()


@pytest.mark.parametrize(
    "command",
    ["git status --short", "git grep -n foo", "git log --oneline -n 5 --all", "tar tf x.tar", "ls -la", "grep -rn foo ."],
)
async def test_everyday_commands_are_allowed_by_the_same_rules(client: PushClient, repository: Path, command: str) -> None:
    subprocess.run(["tar", "cf", "x.tar", "a.txt"], cwd=repository, check=True)

    assert await wait_for_question(client, await start(client, repository), f"run: {command}") is None


def _make_bare(folder: Path) -> None:
    """A folder that git takes for a repository, with a program that `git status` would start."""
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(
        f"[core]\nrepositoryformatversion = 0\nbare = false\nworktree = {folder}\nfsmonitor = touch {folder.parent}/PWNED\n"
    )


@pytest.mark.parametrize("command", ["cd evil && git status", "cd evil/objects && git status", "cd evil; ls"])
@pytest.mark.parametrize("policy", ["ask", "auto"])
async def test_a_bare_repository_in_a_folder_is_asked_about(
    client: PushClient, repository: Path, policy: str, command: str
) -> None:
    _make_bare(repository / "evil")

    asked = await wait_for_question(client, await start(client, repository, policy), f"run: {command}")

    assert asked is not None
    assert not (repository / "PWNED").exists()


@pytest.mark.parametrize("name", ["HEAD", "config", "objects/x", "refs/heads/main"])
async def test_under_auto_the_files_that_make_a_repository_are_asked_about(
    client: PushClient, repository: Path, name: str
) -> None:
    asked = await wait_for_question(client, await start(client, repository, "auto"), f"write evil/{name}: x")

    assert asked is not None
    assert not (repository / "evil" / name).exists()


async def test_under_auto_any_file_of_a_bare_repository_is_asked_about(client: PushClient, repository: Path) -> None:
    _make_bare(repository / "evil")

    asked = await wait_for_question(
        client, await start(client, repository, "auto"), "write evil/hooks/post-checkout: touch PWNED"
    )

    assert asked is not None
    assert not (repository / "evil" / "hooks").exists()


@pytest.fixture
def outside_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="outside-", dir="/tmp"))
    (folder / "secret.txt").write_text("outside\n")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "command",
    [
        "ls; echo x > notes.txt",
        "cat notes.txt",
        "cat < notes.txt",
        "cat not*.txt",
        "cat ./notes.txt",
        "cat folder/secret.txt",
        "cd folder && ls",
        "cat folder/../notes.txt",
        "sh -c 'cat notes.txt'",
        "grep -n --file=notes.txt x a.txt",
    ],
)
async def test_a_link_that_leads_out_is_asked_about(
    client: PushClient, repository: Path, outside_folder: Path, command: str
) -> None:
    (repository / "notes.txt").symlink_to(outside_folder / "secret.txt")
    (repository / "folder").symlink_to(outside_folder)

    asked = await wait_for_question(client, await start(client, repository, "auto"), f"run: {command}")

    assert asked is not None
    assert (outside_folder / "secret.txt").read_text() == "outside\n"


async def test_a_link_that_stays_inside_is_not_asked_about(client: PushClient, repository: Path) -> None:
    (repository / "notes.txt").symlink_to("a.txt")

    assert await wait_for_question(client, await start(client, repository, "auto"), "run: cat notes.txt") is None


async def test_under_auto_a_link_to_a_file_that_steers_is_asked_about(client: PushClient, repository: Path) -> None:
    (repository / "AGENTS.md").write_text("be good\n")
    (repository / "notes.txt").symlink_to("AGENTS.md")

    session_id = await start(client, repository, "auto")

    assert await wait_for_question(client, session_id, "write notes.txt: be evil") is not None
    assert await wait_for_question(client, session_id, "run: ls; echo evil > notes.txt") is not None
    assert (repository / "AGENTS.md").read_text() == "be good\n"


async def _approve_always(client: PushClient, session_id: str, text: str) -> ReceivedEvent:
    await client.send(session_id, text)
    asked = (await client.read_until("approval_required"))[-1]
    decision = {"runId": asked.run_id, "approvalId": asked.payload["approvalId"], "decision": "approve", "scope": "session"}
    await client.request_payload("submit_approval", decision, session_id=session_id)
    await client.read_until("run_complete")
    return asked


@pytest.fixture
def two_makefiles(repository: Path) -> Path:
    (repository / "Makefile").write_text("test:\n\t@echo tested\n")
    (repository / "vendor").mkdir()
    (repository / "vendor" / "Makefile").write_text("test:\n\t@touch ../PWNED\n")
    return repository


@pytest.mark.parametrize(
    "command",
    [
        "cd vendor && make test",
        "echo x | make test",
        "make test < a.txt",
        "make test <<E\nx\nE",
        "make -C vendor test",
        "make test x",
    ],
)
async def test_always_keeps_the_folder_and_the_input(client: PushClient, two_makefiles: Path, command: str) -> None:
    session_id = await start(client, two_makefiles)
    await _approve_always(client, session_id, "run: make test")

    assert await wait_for_question(client, session_id, "run: make test") is None
    assert await wait_for_question(client, session_id, f"run: {command}") is not None
    assert not (two_makefiles / "PWNED").exists()


async def test_the_question_says_that_always_covers_any_arguments(client: PushClient, repository: Path) -> None:
    session_id = await start(client, repository)
    (repository / "a.txt").write_text("bar\n")

    asked = await wait_for_question(client, session_id, "commit: a change")

    assert asked is not None
    assert asked.payload["details"]["always"] == "allow git_commit, with any arguments"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("make *", "make -f vendor/Makefile test"),
        ("git *", "git -c alias.x='!touch PWNED' x"),
        ("git *", "git -c core.fsmonitor='touch PWNED' status"),
    ],
)
async def test_rules_sent_with_a_message_are_judged_on_the_call_itself(
    client: PushClient, two_makefiles: Path, rule: str, command: str
) -> None:
    rules = [{"effect": "allow", "tool": "run", "command": rule}]

    asked = await wait_for_question(client, await start(client, two_makefiles), f"run: {command}", rules=rules)

    assert asked is not None
    assert not (two_makefiles / "PWNED").exists()


async def test_rules_sent_with_a_message_hold_for_its_run_alone(client: PushClient, two_makefiles: Path) -> None:
    session_id = await start(client, two_makefiles)
    rules = [{"effect": "allow", "tool": "run", "command": "make *"}]

    assert await wait_for_question(client, session_id, "run: make test", rules=rules) is None
    assert await wait_for_question(client, session_id, "run: make test") is not None


async def test_a_rule_that_the_policy_does_not_understand_is_refused(client: PushClient, repository: Path) -> None:
    session_id = await start(client, repository)
    payload = {"sessionId": session_id, "clientMessageId": "msg_1", "text": "run: ls", "rules": [{"effect": "allow"}]}

    response = await client.request("send_user_message", payload, session_id=session_id)

    assert response.code == "INVALID_REQUEST"
