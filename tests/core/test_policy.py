"""What each kind of tool call needs before it runs."""

import pytest

from switchtower.core import policy

SECRETS = [
    ".env",
    ".env.local",
    "deploy/.envrc",
    "server.pem",
    "tls/server.KEY",
    "a.p12",
    "a.pfx",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".git-credentials",
    "id_rsa",
    "keys/id_ed25519.pub",
    "/home/ada/.ssh/known_hosts",
    ".ssh/config",
    ".aws/credentials",
    "/home/ada/.docker/config.json",
]
ORDINARY = [
    "README.md",
    "src/env.py",
    "keys.py",
    "docs/id.md",
    "credentials",
    "config.json",
    "key",
    ".",
    "",
    "environment/.gitignore",
]


@pytest.mark.parametrize("path", SECRETS)
@pytest.mark.parametrize("tool", ["read_file", "list_dir", "write_file", "a_tool_to_come"])
def test_a_secret_file_is_denied_to_every_tool(tool: str, path: str) -> None:
    judgement = policy.judge(tool, {"path": path})

    assert judgement.ruling is policy.Ruling.DENY
    assert path in judgement.reason


@pytest.mark.parametrize("path", ORDINARY)
def test_an_ordinary_file_is_read_freely_and_written_after_a_question(path: str) -> None:
    assert policy.judge("read_file", {"path": path}).ruling is policy.Ruling.ALLOW
    assert policy.judge("list_dir", {"path": path}).ruling is policy.Ruling.ALLOW
    assert policy.judge("write_file", {"path": path, "content": "x"}).ruling is policy.Ruling.ASK


@pytest.mark.parametrize("command", ["ls", "", "echo 'unfinished", None, 7])
def test_a_command_is_asked_about(command: object) -> None:
    assert policy.judge("run", {"command": command}) == policy.Judgement(policy.Ruling.ASK, "it runs a command")


@pytest.mark.parametrize("command", ["cat .env", "cat 'deploy/.env.local'", "echo 'unfinished .env"])
def test_a_command_that_names_a_secret_file_says_so_to_whoever_decides(command: str) -> None:
    judgement = policy.judge("run", {"command": command})

    assert judgement.ruling is policy.Ruling.ASK
    assert ".env" in judgement.reason


def test_an_unknown_tool_is_asked_about() -> None:
    judgement = policy.judge("launch", {"target": "moon"})

    assert judgement.ruling is policy.Ruling.ASK
    assert "launch" in judgement.reason
