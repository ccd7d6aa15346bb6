"""What calls about files need, and calls of tools that nothing is known about."""

from typing import Any

import pytest

from switchtower.core import events, policy
from switchtower.core.policy import Ruling

WORKSPACE = "/work/repo"
SECRETS = [
    ".env",
    "./.env",
    ".ENV",
    ".env.local",
    "deploy/.envrc",
    "src/../.env",
    "/work/repo/.env",
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
    ".ssh",
    ".aws/credentials",
    "/home/ada/.docker/config.json",
    "sub\\.env",
    "．env",
    ".e\u200bnv",
]
ORDINARY = [
    "README.md",
    "src/env.py",
    "keys.py",
    "docs/id.md",
    "credentials",
    "config.json",
    "key",
    "environment/.gitignore",
    "/work/repo/src/a.py",
    "a/../b.py",
    "-rf",
    "a b",
    "ünï.py",
]
STEERING = [
    "AGENTS.md",
    "agents.md",
    "sub/AGENTS.md",
    "CLAUDE.md",
    ".mcp.json",
    "./.mcp.json",
    ".tower/skills/x.md",
    ".TOWER/x",
    "/work/repo/.mcp.json",
    "src/../AGENTS.md",
]
GIT = [
    ".git",
    ".git/config",
    ".git/hooks/pre-commit",
    ".GIT/config",
    "sub/.git/config",
    "src/../.git/x",
    "/work/repo/.git/x",
    ".g\u200cit/x",
    "git~1/config",
    ".git./config",
]
OUTSIDE = ["..", "../x", "/etc/passwd", "a/../../x", "/work/repository/x", "/work/repo/../x", "~/x", "/"]


def judge_call(
    tool: str, args: Any, *rules: events.Rule, profile: str = "ask", effect: str | None = None, workspace: str = WORKSPACE
) -> policy.Judgement:
    return policy.Policy(profile, rules).judge(tool, args, effect, workspace)


@pytest.mark.parametrize("path", SECRETS)
@pytest.mark.parametrize("profile", policy.PROFILES)
@pytest.mark.parametrize("tool", ["read_file", "list_dir", "search", "git_diff", "write_file", "edit_file", "a_tool_to_come"])
def test_a_secret_file_is_denied_to_every_tool_in_every_profile(tool: str, profile: str, path: str) -> None:
    judgement = judge_call(tool, {"path": path}, events.Rule("allow", tool="*"), events.Rule("allow", path="**"), profile=profile)

    assert judgement.ruling is Ruling.DENY
    assert path in judgement.reason


@pytest.mark.parametrize("path", [".aws", ".docker", "home/.aws/"])
def test_a_search_through_a_folder_that_is_known_for_secrets_is_denied(path: str) -> None:
    assert judge_call("search", {"pattern": "x", "path": path}).ruling is Ruling.DENY
    assert judge_call("list_dir", {"path": path}).ruling is Ruling.ALLOW


@pytest.mark.parametrize("glob", [".env*", "*.pem", "**/id_rsa"])
def test_a_search_for_secret_files_is_denied(glob: str) -> None:
    assert judge_call("search", {"pattern": "x", "glob": glob}).ruling is Ruling.DENY
    assert judge_call("search", {"pattern": "x", "glob": "*.py"}).ruling is Ruling.ALLOW


def test_a_commit_of_a_secret_file_is_denied() -> None:
    assert judge_call("git_commit", {"message": "x", "paths": ["a.py", ".env"]}, profile="yolo").ruling is Ruling.DENY


@pytest.mark.parametrize("path", ORDINARY)
def test_an_ordinary_file_is_read_freely_and_written_after_a_question(path: str) -> None:
    assert judge_call("read_file", {"path": path}).ruling is Ruling.ALLOW
    assert judge_call("list_dir", {"path": path}).ruling is Ruling.ALLOW
    assert judge_call("search", {"pattern": "x", "path": path}).ruling is Ruling.ALLOW
    assert judge_call("write_file", {"path": path, "content": "x"}).ruling is Ruling.ASK
    assert judge_call("edit_file", {"path": path, "old": "x", "new": "y"}).ruling is Ruling.ASK


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("read_file", {"path": "a"}),
        ("list_dir", {}),
        ("search", {"pattern": "x"}),
        ("git_status", {}),
        ("git_diff", {"staged": True}),
        ("write_file", {"path": "a", "content": "x"}),
        ("edit_file", {"path": "a", "old": "x", "new": "y"}),
        ("git_commit", {"message": "x"}),
        ("run", {"command": "make"}),
        ("server_tool", {"query": "x"}),
        ("mcp_server", {"name": "x", "command": "npx x"}),
    ],
)
def test_each_profile_has_its_defaults(tool: str, args: dict[str, Any]) -> None:
    reads = tool in ("read_file", "list_dir", "search", "git_status", "git_diff")
    writes = tool in ("write_file", "edit_file")

    assert judge_call(tool, args, profile="read-only").ruling is (Ruling.ALLOW if reads else Ruling.DENY)
    assert judge_call(tool, args, profile="ask").ruling is (Ruling.ALLOW if reads else Ruling.ASK)
    assert judge_call(tool, args, profile="auto").ruling is (Ruling.ALLOW if reads or writes else Ruling.ASK)
    assert judge_call(tool, args, profile="yolo").ruling is Ruling.ALLOW


def test_no_rule_gives_read_only_more_than_reading() -> None:
    everything = events.Rule("allow", tool="*")

    assert judge_call("write_file", {"path": "a"}, everything, profile="read-only").ruling is Ruling.DENY
    assert judge_call("server_tool", {}, everything, profile="read-only").ruling is Ruling.DENY
    assert judge_call("mcp_server", {"command": "x"}, everything, profile="read-only").ruling is Ruling.DENY


def test_a_profile_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no policy profile `careless`; there are `read-only`, `ask`, `auto`, `yolo`"):
        policy.Policy("careless")


@pytest.mark.parametrize("path", STEERING)
def test_what_steers_the_agent_is_asked_about_each_time(path: str) -> None:
    broad = (
        events.Rule("allow", tool="*"),
        events.Rule("allow", path="**"),
        events.Rule("allow", tool="write_file", path="*.md"),
    )
    for profile in ("ask", "auto"):
        judgement = judge_call("write_file", {"path": path}, *broad, profile=profile)
        assert judgement.ruling is Ruling.ASK
        assert judgement.always is None
    assert judge_call("read_file", {"path": path}).ruling is Ruling.ALLOW
    assert judge_call("write_file", {"path": path}, profile="yolo").ruling is Ruling.ALLOW
    assert judge_call("fs_write", {"path": path}, events.Rule("allow", tool="fs_*")).ruling is Ruling.ASK


def test_a_rule_that_spells_out_such_a_file_allows_it() -> None:
    rule = events.Rule("allow", tool="edit_file", path="docs/AGENTS.md")

    assert judge_call("edit_file", {"path": "docs/AGENTS.md"}, rule).ruling is Ruling.ALLOW
    assert judge_call("edit_file", {"path": "AGENTS.md"}, rule).ruling is Ruling.ASK


@pytest.mark.parametrize("path", GIT)
@pytest.mark.parametrize("profile", policy.PROFILES)
def test_files_of_git_are_written_by_no_file_tool(path: str, profile: str) -> None:
    rule = events.Rule("allow", path="**")

    assert judge_call("write_file", {"path": path}, rule, profile=profile).ruling is Ruling.DENY
    assert judge_call("edit_file", {"path": path}, rule, profile=profile).ruling is Ruling.DENY
    assert judge_call("read_file", {"path": path}, rule, profile=profile).ruling is Ruling.ALLOW


def test_a_tool_of_somebody_else_is_asked_about_files_of_git_each_time() -> None:
    judgement = judge_call("fs_write", {"path": ".git/config"}, events.Rule("allow", tool="fs_*"))

    assert judgement.ruling is Ruling.ASK
    assert judgement.always is None


@pytest.mark.parametrize("path", [".gitignore", ".github/CODEOWNERS", "git/settings", "a.git", "docs/agents.markdown"])
def test_names_that_only_resemble_them_are_ordinary(path: str) -> None:
    assert judge_call("write_file", {"path": path}, profile="auto").ruling is Ruling.ALLOW


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("tool", ["read_file", "write_file"])
def test_what_lies_outside_the_workspace_is_never_allowed_by_a_rule(tool: str, path: str) -> None:
    rules = (events.Rule("allow", path="**"), events.Rule("allow", tool="*"), events.Rule("allow", path="/**"))
    for profile in ("ask", "auto"):
        judgement = judge_call(tool, {"path": path}, *rules, profile=profile)
        assert judgement.ruling is Ruling.ASK
        assert judgement.always is None
        assert "outside the workspace" in judgement.reason
    assert judge_call(tool, {"path": path}, *rules, profile="read-only").ruling is Ruling.DENY


def test_without_a_workspace_an_absolute_path_is_outside() -> None:
    assert judge_call("read_file", {"path": "/etc/passwd"}, workspace="").ruling is Ruling.ASK
    assert judge_call("read_file", {"path": "a"}, workspace="").ruling is Ruling.ALLOW


def test_always_for_a_file_stands_for_this_tool_and_this_file() -> None:
    judgement = judge_call("edit_file", {"path": "./src/[a]*.py"})

    assert judgement.always == events.Rule("allow", tool="edit_file", path="src/\\[a]\\*.py")
    after = policy.Policy("ask").with_grant(judgement.always)
    assert after.judge("edit_file", {"path": "/work/repo/src/[a]*.py"}, None, WORKSPACE).ruling is Ruling.ALLOW
    assert after.judge("edit_file", {"path": "src/ab.py"}, None, WORKSPACE).ruling is Ruling.ASK
    assert after.judge("write_file", {"path": "src/[a]*.py"}, None, WORKSPACE).ruling is Ruling.ASK


@pytest.mark.parametrize("tool", ["git_commit", "server_tool", "odd*name"])
def test_always_for_another_tool_stands_for_that_tool(tool: str) -> None:
    judgement = judge_call(tool, {"message": "x"})

    assert judgement.ruling is Ruling.ASK
    assert judgement.always is not None
    after = policy.Policy("ask").with_grant(judgement.always)
    assert after.judge(tool, {"message": "y"}).ruling is Ruling.ALLOW
    assert after.judge(f"{tool}_2", {"message": "y"}).ruling is Ruling.ASK


def test_an_unknown_tool_is_asked_about() -> None:
    judgement = judge_call("launch", {"target": "moon"})

    assert judgement.ruling is Ruling.ASK
    assert "launch" in judgement.reason


@pytest.mark.parametrize(
    "args",
    [
        {"path": ".env"},
        {"file": ".env"},
        {"uri": "file:///work/repo/.env"},
        {"deep": {"filePath": ["a", ".ssh/config"]}},
        {"anything": "./secrets/server.pem"},
        {"sourceFile": "id_rsa"},
        {"paths": ["ok", {"path": ".npmrc"}]},
    ],
)
def test_a_secret_is_found_anywhere_in_the_arguments_of_an_unknown_tool(args: dict[str, Any]) -> None:
    assert judge_call("server_tool", args, events.Rule("allow", tool="*"), profile="yolo").ruling is Ruling.DENY


@pytest.mark.parametrize(
    "args", [{"id": "id_5"}, {"url": "https://example.com/.env"}, {"text": "read the .env file"}, {"key": "a.key"}]
)
def test_what_only_sounds_like_a_secret_is_left_alone(args: dict[str, Any]) -> None:
    assert judge_call("server_tool", args).ruling is Ruling.ASK


def test_arguments_that_are_too_many_to_look_at_are_asked_about_each_time() -> None:
    judgement = judge_call("server_tool", {"rows": [["x"] * 100] * 100}, events.Rule("allow", tool="*"))

    assert judgement.ruling is Ruling.ASK
    assert judgement.always is None


def test_a_tool_that_says_what_it_does_is_treated_so() -> None:
    assert judge_call("plugin_look", {}, effect="read").ruling is Ruling.ALLOW
    assert judge_call("plugin_write", {"path": "a"}, effect="write", profile="auto").ruling is Ruling.ALLOW
    assert judge_call("plugin_write", {}, effect="write", profile="auto").ruling is Ruling.ASK
    assert judge_call("plugin_do", {}, effect="execute", profile="auto").ruling is Ruling.ASK


def test_a_tool_that_bears_our_name_but_does_more_is_not_taken_for_ours() -> None:
    assert judge_call("read_file", {"path": "a"}, effect="execute").ruling is Ruling.ASK
    assert judge_call("read_file", {"path": "a"}, effect="write").ruling is Ruling.ASK
    assert judge_call("write_file", {"path": "a"}, effect="execute", profile="auto").ruling is Ruling.ASK
    assert judge_call("run", {"command": "ls"}, effect="read").ruling is Ruling.ASK


@pytest.mark.parametrize("path", [7, None, ["a", 7], {"a": 1}, b"x", "x\0", "x" * 5000])
@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_a_path_that_is_none_is_not_written_without_a_question(tool: str, path: object) -> None:
    judgement = judge_call(tool, {"path": path}, profile="auto")

    assert judgement.ruling is Ruling.ASK
    assert "could not be judged" not in judgement.reason


@pytest.mark.parametrize("path", [7, ["a"], {"a": 1}, b"x", "x\0", "x" * 5000])
@pytest.mark.parametrize("tool", ["read_file", "list_dir", "search"])
def test_nor_is_it_read(tool: str, path: object) -> None:
    assert judge_call(tool, {"path": path}).ruling is Ruling.ASK
    assert judge_call(tool, {"path": path}, profile="read-only").ruling is Ruling.DENY


@pytest.mark.parametrize("args", [None, 7, "x", ["a"], {}, {7: 8}, {"path": {}}, {"paths": 7}])
@pytest.mark.parametrize("tool", ["read_file", "write_file", "git_commit", "run", "mcp_server", "x", ""])
@pytest.mark.parametrize("profile", policy.PROFILES)
def test_arguments_of_any_kind_are_judged(tool: str, args: Any, profile: str) -> None:
    assert "could not be judged" not in judge_call(tool, args, profile=profile).reason


class TestServers:
    def test_a_server_is_asked_about_and_always_stands_for_its_command(self) -> None:
        judgement = judge_call("mcp_server", {"name": "files", "command": "npx -y 'a server' ."})

        assert judgement.ruling is Ruling.ASK
        assert judgement.always == events.Rule("allow", tool="mcp_server", command="npx -y 'a server' .")
        after = policy.Policy("ask").with_grant(judgement.always)
        assert after.judge("mcp_server", {"name": "files", "command": "npx -y 'a server' ."}).ruling is Ruling.ALLOW
        assert after.judge("mcp_server", {"name": "files", "command": "npx -y 'a server' /"}).ruling is Ruling.ASK
        assert after.judge("run", {"command": "npx -y 'a server' ."}).ruling is Ruling.ASK

    def test_a_command_may_come_as_a_list(self) -> None:
        whole = judge_call("mcp_server", {"command": "npx", "args": ["-y", "a server"]})
        split = judge_call("mcp_server", {"command": ["npx", "-y", "a server"]})

        assert whole.always == split.always == events.Rule("allow", tool="mcp_server", command="npx -y 'a server'")

    def test_a_server_behind_an_address_is_asked_about(self) -> None:
        address = {"name": "far", "url": "https://example.com/mcp?a=1&b=*"}
        judgement = judge_call("mcp_server", address)

        assert judgement.ruling is Ruling.ASK
        assert judgement.always is not None
        after = policy.Policy("ask").with_grant(judgement.always)
        assert after.judge("mcp_server", address).ruling is Ruling.ALLOW
        assert after.judge("mcp_server", {"url": "https://example.com/mcp?a=1&b=2"}).ruling is Ruling.ASK

    @pytest.mark.parametrize(
        ("more", "command"),
        [
            ({"env": {"TOKEN": "${KEY}"}}, "env 'TOKEN=${KEY}' npx x"),
            ({"folder": "sub"}, "cd sub && npx x"),
            ({"folder": "sub", "env": {"B": "2", "A": "1"}}, "cd sub && env A=1 B=2 npx x"),
            ({"folder": WORKSPACE, "env": {}}, "npx x"),
        ],
    )
    def test_its_variables_and_its_folder_are_part_of_what_always_stands_for(self, more: dict[str, Any], command: str) -> None:
        server = {"name": "files", "command": "npx x", **more}
        judgement = judge_call("mcp_server", server)

        assert judgement.always == events.Rule("allow", tool="mcp_server", command=command)
        after = policy.Policy("ask").with_grant(judgement.always)
        assert after.judge("mcp_server", server, None, WORKSPACE).ruling is Ruling.ALLOW
        other = {**server, "env": {"LD_PRELOAD": "./x.so"}}
        assert after.judge("mcp_server", other, None, WORKSPACE).ruling is Ruling.ASK
        assert judge_call("mcp_server", other, events.Rule("allow", tool="mcp_server", command="npx *")).ruling is Ruling.ASK
        assert judge_call("mcp_server", server, events.Rule("deny", command="npx")).ruling is Ruling.DENY

    def test_a_rule_for_commands_is_no_rule_for_servers(self) -> None:
        server = {"command": "npx x"}

        assert judge_call("mcp_server", server, events.Rule("allow", command="npx *")).ruling is Ruling.ASK
        assert judge_call("mcp_server", server, events.Rule("allow", tool="run")).ruling is Ruling.ASK
        assert judge_call("mcp_server", server, events.Rule("allow", tool="mcp_server", command="npx *")).ruling is Ruling.ALLOW
        assert judge_call("mcp_server", server, events.Rule("allow", tool="mcp_server")).ruling is Ruling.ALLOW
        assert judge_call("mcp_server", server, events.Rule("deny", command="npx *")).ruling is Ruling.DENY
        assert judge_call("mcp_server", server, events.Rule("ask", tool="mcp_*"), profile="yolo").ruling is Ruling.ASK

    @pytest.mark.parametrize("command", ["sh -c 'curl x | sh'", "sudo x", "$X", "npx $(x)"])
    def test_a_dangerous_or_unclear_server_has_no_always(self, command: str) -> None:
        judgement = judge_call("mcp_server", {"command": command}, events.Rule("allow", tool="mcp_server"))

        assert judgement.ruling is Ruling.ASK
        assert judgement.always is None
