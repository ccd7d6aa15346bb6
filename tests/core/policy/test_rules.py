"""Rules: how they are written, which files they are about, and which of several wins."""

import pytest

from switchtower.core import events, policy
from switchtower.core.policy import Ruling

WORKSPACE = "/work/repo"


def write_rules(path: str, *rules: events.Rule, profile: str = "ask") -> Ruling:
    return policy.Policy(profile, rules).judge("write_file", {"path": path}, "write", WORKSPACE).ruling


def test_rules_are_read_from_tables() -> None:
    table = [
        {"effect": "allow", "command": "npm test"},
        {"effect": "deny", "path": "prod/**"},
        {"effect": "ask", "tool": "read_file", "path": "notes/*"},
        {"effect": "allow", "tool": "mcp_server", "command": "npx *"},
    ]

    assert policy.parse_rules(table) == (
        events.Rule("allow", command="npm test"),
        events.Rule("deny", path="prod/**"),
        events.Rule("ask", tool="read_file", path="notes/*"),
        events.Rule("allow", tool="mcp_server", command="npx *"),
    )


@pytest.mark.parametrize("table", [None, (), []])
def test_no_rules_are_no_rules(table: object) -> None:
    assert policy.parse_rules(table) == ()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("allow", "a list of tables"),
        ({"effect": "allow"}, "a list of tables"),
        (7, "a list of tables"),
        ([7], "rule 1 is not a table"),
        ([{"effect": "allow", "command": "ls"}, {"effect": "allow", "commands": "ls"}], "rule 2 has an unknown key `commands`"),
        ([{"tool": "run"}], "`effect` is one of `allow`, `ask`, `deny`"),
        ([{"effect": "Allow", "tool": "run"}], "`effect` is one of"),
        ([{"effect": "allow"}], "does not say which calls it is about"),
        ([{"effect": "allow", "tool": 7}], "`tool` is a text"),
        ([{"effect": "allow", "tool": " "}], "`tool` is a text that is not empty"),
        ([{"effect": "allow", "command": ["ls"]}], "`command` is a text"),
        ([{"effect": "allow", "path": "x" * 5000}], "`path` is longer than"),
        ([{"effect": "allow", "path": "~/x"}], "`path` is relative to the workspace"),
        ([{"effect": "allow", "path": "../x"}], "`path` is relative to the workspace"),
        ([{"effect": "allow", "path": "x", "command": "ls"}], "`path` and `command` are for different tools"),
        ([{"effect": "allow", "tool": "read_file", "command": "ls"}], "`command` says nothing about the tool `read_file`"),
        ([{"effect": "allow", "command": "ls 'x"}], "a quote in `command` does not end"),
        ([{"effect": "allow", "command": 'ls "x'}], "a quote in `command` does not end"),
        ([{"effect": "allow", "command": "ls \\"}], "a quote in `command` does not end"),
    ],
)
def test_a_wrong_rule_is_refused_with_the_reason(table: object, problem: str) -> None:
    with pytest.raises(ValueError) as refused:
        policy.parse_rules(table)

    assert problem in str(refused.value)


@pytest.mark.parametrize("command", ["ls 'it'", 'ls "it\'s"', "ls \\'", "ls 'a\\'", "*", "ls && rm x"])
def test_quotes_in_a_command_may_hold_each_other(command: str) -> None:
    assert policy.parse_rules([{"effect": "allow", "command": command}]) == (events.Rule("allow", command=command),)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("a.py", "a.py", True),
        ("a.py", "./a.py", True),
        ("./a.py", "a.py", True),
        ("a.py", "b/../a.py", True),
        ("a.py", "/work/repo/a.py", True),
        ("a.py", "A.py", False),
        ("a.py", "src/a.py", False),
        ("*.py", "a.py", True),
        ("*.py", "src/a.py", False),
        ("*.py", ".py", True),
        ("**/*.py", "a.py", True),
        ("**/*.py", "src/deep/a.py", True),
        ("src/**", "src/a.py", True),
        ("src/**", "src", True),
        ("src/**", "srcs/a.py", False),
        ("src/*", "src/a.py", True),
        ("src/*", "src/deep/a.py", False),
        ("src/*", "src/../lib/a.py", False),
        ("src/**/test_*.py", "src/test_a.py", True),
        ("src/**/test_*.py", "src/a/b/test_a.py", True),
        ("src/**/test_*.py", "src/a/b/a.py", False),
        ("**", "a/b/c", True),
        ("src", "src/a.py", False),
        ("[ab].py", "a.py", True),
        ("[!ab].py", "a.py", False),
        ("[a-c].py", "b.py", True),
        ("?.py", "é.py", True),
        ("/work/repo/src/**", "src/a.py", True),
        ("/work/other/**", "src/a.py", False),
        ("src//a.py", "src/a.py", True),
    ],
)
def test_a_path_pattern_that_allows_fits_exactly(pattern: str, path: str, *, fits: bool) -> None:
    assert (write_rules(path, events.Rule("allow", path=pattern)) is Ruling.ALLOW) == fits


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("prod/**", "prod/x", True),
        ("prod/**", "prod", True),
        ("prod", "prod/a/b", True),
        ("prod/", "prod/a", True),
        ("prod/**", "PROD/x", True),
        ("Prod/**", "prod/x", True),
        ("prod/**", "./a/../prod/x", True),
        ("prod/**", "/work/repo/prod/x", True),
        ("prod/**", "ｐrod/x", True),
        ("prod/**", "production/x", False),
        ("prod/**", "a/prod/x", False),
        ("**/prod", "a/prod/x", True),
        ("*.sql", "a.SQL", True),
        ("*.sql", "a/b.sql", False),
        ("**/*.sql", "a/b.sql", True),
        ("/work/repo/prod", "prod/x", True),
    ],
)
@pytest.mark.parametrize("effect", [Ruling.DENY, Ruling.ASK])
def test_a_path_pattern_that_restricts_fits_generously(pattern: str, path: str, effect: Ruling, *, fits: bool) -> None:
    assert (write_rules(path, events.Rule(effect.value, path=pattern), profile="auto") is effect) == fits


def test_the_strictest_rule_wins_in_any_order() -> None:
    allow, ask, deny = (events.Rule(effect, path="src/**") for effect in ("allow", "ask", "deny"))

    assert write_rules("src/a", allow) is Ruling.ALLOW
    assert write_rules("src/a", allow, ask) is Ruling.ASK
    assert write_rules("src/a", ask, allow) is Ruling.ASK
    assert write_rules("src/a", deny, ask, allow) is Ruling.DENY
    assert write_rules("src/a", allow, ask, deny, profile="yolo") is Ruling.DENY
    assert write_rules("src/a", allow, ask, profile="yolo") is Ruling.ASK


def test_a_grant_does_not_lift_what_the_configuration_asks_or_denies() -> None:
    grant = events.Rule("allow", tool="write_file", path="src/a")
    for effect in (Ruling.ASK, Ruling.DENY):
        restricted = policy.Policy("ask", (events.Rule(effect.value, path="src/**"),)).with_grant(grant)
        judgement = restricted.judge("write_file", {"path": "src/a"}, "write", WORKSPACE)
        assert judgement.ruling is effect
        assert judgement.always is None


def test_granting_makes_another_policy_and_leaves_the_first_alone() -> None:
    before = policy.Policy("ask")
    after = before.with_grant(events.Rule("allow", tool="git_commit"))

    assert before.judge("git_commit", {}).ruling is Ruling.ASK
    assert after.judge("git_commit", {}).ruling is Ruling.ALLOW
    assert before == policy.Policy("ask")


def test_a_rule_for_a_tool_may_have_wildcards() -> None:
    book = policy.Policy("ask", (events.Rule("allow", tool="github_*"), events.Rule("deny", tool="GitHub_delete_*")))

    assert book.judge("github_list", {}).ruling is Ruling.ALLOW
    assert book.judge("gitlab_list", {}).ruling is Ruling.ASK
    assert book.judge("github_delete_repo", {}).ruling is Ruling.DENY


def test_a_rule_may_make_reading_a_question() -> None:
    book = policy.Policy("auto", (events.Rule("ask", tool="read_file", path="notes/**"),))

    assert book.judge("read_file", {"path": "notes/a"}, "read", WORKSPACE).ruling is Ruling.ASK
    assert book.judge("read_file", {"path": "a"}, "read", WORKSPACE).ruling is Ruling.ALLOW
    assert book.judge("write_file", {"path": "notes/a"}, "write", WORKSPACE).ruling is Ruling.ALLOW


@pytest.mark.parametrize(
    ("tool", "args"), [("search", {"pattern": "x"}), ("search", {"pattern": "x", "path": "a"}), ("git_diff", {})]
)
def test_a_look_through_a_folder_above_a_restricted_one_is_asked_about(tool: str, args: dict[str, str]) -> None:
    rule = events.Rule("deny", path="a/prod/**")

    assert policy.Policy("ask", (rule,)).judge(tool, args, "read", WORKSPACE).ruling is Ruling.ASK
    assert policy.Policy("ask", (rule,)).judge(tool, {**args, "path": "src"}, "read", WORKSPACE).ruling is Ruling.ALLOW
    assert policy.Policy("ask", (rule,)).judge(tool, {**args, "path": "a/prod/x"}, "read", WORKSPACE).ruling is Ruling.DENY


def test_a_rule_with_a_path_says_nothing_about_commands_that_it_would_allow() -> None:
    book = policy.Policy("ask", (events.Rule("allow", path="**"),))

    assert book.judge("run", {"command": "cat a"}, "execute", WORKSPACE).ruling is Ruling.ASK


def test_a_commit_needs_a_rule_for_each_of_its_files() -> None:
    book = policy.Policy("auto", (events.Rule("allow", tool="git_commit", path="src/**"),))

    assert book.judge("git_commit", {"message": "x", "paths": ["src/a", "src/b"]}).ruling is Ruling.ALLOW
    assert book.judge("git_commit", {"message": "x", "paths": ["src/a", "b"]}).ruling is Ruling.ASK
    assert book.judge("git_commit", {"message": "x"}).ruling is Ruling.ASK


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (events.Rule("allow", command="npm test"), "allow npm test"),
        (events.Rule("deny", tool="run", command="git push *"), "deny run git push *"),
        (events.Rule("ask", tool="write_file", path="src/**"), "ask write_file src/**"),
    ],
)
def test_a_rule_is_shown_as_one_short_text(rule: events.Rule, text: str) -> None:
    assert policy.format_rule(rule) == text
