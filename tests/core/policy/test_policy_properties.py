"""What holds for any call and any rules: it is judged, a rule that restricts never loosens, no whole is looser than a part."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from switchtower.core import events, policy
from switchtower.core.policy import Ruling

WORKSPACE = "/work/repo"
STRICTNESS = {Ruling.ALLOW: 0, Ruling.ASK: 1, Ruling.DENY: 2}
TOOLS = [
    "read_file",
    "list_dir",
    "search",
    "git_status",
    "git_diff",
    "write_file",
    "edit_file",
    "git_commit",
    "run",
    "mcp_server",
    "a_b",
]

GLUE = ("true", "echo hi", "cd src", "echo x > y")
"""Asked about alone, and allowed beside what a rule allows: by themselves they do nothing, or only what `auto` allows."""

profiles = st.sampled_from(policy.PROFILES)
paths = st.one_of(
    st.sampled_from(["a", "src/a.py", ".env", "AGENTS.md", ".git/config", "../x", "/work/repo/prod/x"]), st.text(max_size=12)
)
simple_commands = st.sampled_from(
    [
        *(
            "ls",
            "ls -la",
            "npm test",
            "cat a",
            "cat .env",
            "rm x",
            "rm -rf x",
            "git push",
            "git status",
            "make",
            "true",
            "cd src",
        ),
        *(
            "cd /tmp",
            "echo hi",
            "echo $X",
            "echo x > y",
            "echo x > .git/config",
            "sudo ls",
            "X=1 ls",
            "sh -c 'rm x'",
            "xargs cat",
        ),
        "cat prod/x",
    ]
)
command_texts = st.one_of(
    simple_commands,
    st.lists(simple_commands, min_size=1, max_size=3).map(" && ".join),
    st.text(st.sampled_from("lsrm ./-$(){}[]<>|&;\"'`\\\n#*?=~"), max_size=30),
    st.text(max_size=30),
)
patterns = st.sampled_from(
    ["*", "ls *", "npm test", "cat *", "rm *", "git *", "git push", "echo *", "make", "ls && npm test", "'", "a\\"]
)
globs = st.sampled_from(["**", "*", "src/**", "a", "prod/**", "/work/repo/**", "[", ".env", "**/*.py"])
rules = st.builds(
    events.Rule,
    effect=st.sampled_from(["allow", "ask", "deny"]),
    tool=st.none() | st.sampled_from(["*", "run", "write_file", "mcp_*", "read_*"]),
    path=st.none() | globs,
    command=st.none() | patterns,
)
rule_lists = st.lists(rules, max_size=4)
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.binary(max_size=5) | st.floats()
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
arguments = st.one_of(
    st.fixed_dictionaries({"path": paths}),
    st.fixed_dictionaries({"command": command_texts}),
    st.fixed_dictionaries({"command": command_texts, "path": paths, "paths": st.lists(paths, max_size=3)}),
    st.dictionaries(st.sampled_from(["path", "paths", "command", "glob", "args", "url", "name", "x"]), anything, max_size=4),
)


def judge_call(book: policy.Policy, tool: str, args: Any, effect: str | None = None) -> policy.Judgement:
    return book.judge(tool, args, effect, WORKSPACE)


def rank_verdict(book: policy.Policy, tool: str, args: Any) -> int:
    return STRICTNESS[judge_call(book, tool, args).ruling]


@settings(max_examples=120)
@given(
    profiles,
    rule_lists,
    st.sampled_from(TOOLS) | st.text(max_size=8),
    arguments | anything,
    st.none() | st.sampled_from(["read", "write", "execute", "x"]),
)
def test_any_call_is_judged_with_a_reason(
    profile: str, listed: list[events.Rule], tool: str, args: Any, effect: str | None
) -> None:
    judgement = judge_call(policy.Policy(profile, listed), tool, args, effect)

    assert judgement.reason
    assert "\n" not in judgement.reason or "\n" in str(args) + tool
    assert "could not be judged" not in judgement.reason


@settings(max_examples=100)
@given(profiles, rule_lists, rules.filter(lambda rule: rule.effect != "allow"), st.sampled_from(TOOLS), arguments)
def test_a_rule_that_restricts_never_loosens(
    profile: str, listed: list[events.Rule], more: events.Rule, tool: str, args: Any
) -> None:
    before = rank_verdict(policy.Policy(profile, listed), tool, args)

    assert rank_verdict(policy.Policy(profile, [*listed, more]), tool, args) >= before
    assert rank_verdict(policy.Policy(profile, [more, *listed]), tool, args) >= before


@settings(max_examples=100)
@given(profiles, rule_lists, rules.filter(lambda rule: rule.effect == "allow"), st.sampled_from(TOOLS), arguments)
def test_a_rule_that_allows_turns_only_a_question_into_a_yes(
    profile: str, listed: list[events.Rule], more: events.Rule, tool: str, args: Any
) -> None:
    before = judge_call(policy.Policy(profile, listed), tool, args)
    after = judge_call(policy.Policy(profile, listed, [more]), tool, args)

    assert after.ruling is before.ruling or (before.ruling, after.ruling) == (Ruling.ASK, Ruling.ALLOW)
    if before.destructive:
        assert after.ruling is before.ruling
    assert judge_call(policy.Policy(profile, [*listed, more]), tool, args) == after


@settings(max_examples=100)
@given(profiles, rule_lists, simple_commands, simple_commands, st.sampled_from([" && ", "; ", " | ", " || ", " & ", "\n"]))
def test_two_commands_are_never_looser_than_each_alone(
    profile: str, listed: list[events.Rule], first: str, second: str, joint: str
) -> None:
    book = policy.Policy(profile, listed)
    together = judge_call(book, "run", {"command": f"{first}{joint}{second}"})

    for part in (first, second):
        alone = judge_call(book, "run", {"command": part})
        if part not in GLUE:
            assert STRICTNESS[together.ruling] >= STRICTNESS[alone.ruling]
        assert together.destructive or not alone.destructive


@settings(max_examples=100)
@given(
    profiles,
    rule_lists,
    simple_commands,
    st.sampled_from(
        ["({})", "{{ {}; }}", "! {}", "if {}; then ls; fi", "sudo {}", "timeout 5 {}", "$({})", "xargs {}", "eval {}"]
    ),
)
@example("yolo", [events.Rule(effect="ask", command="ls *")], "xargs cat", "sudo {}")
@example("yolo", [events.Rule(effect="ask", command="ls *")], "xargs cat", "timeout 5 {}")
def test_a_command_in_another_is_never_looser(profile: str, listed: list[events.Rule], command: str, around: str) -> None:
    book = policy.Policy(profile, listed)
    alone = rank_verdict(book, "run", {"command": command})

    if command not in GLUE or "ls" not in around:
        assert rank_verdict(book, "run", {"command": around.format(command)}) >= alone


@settings(max_examples=100)
@given(st.sampled_from(["ask", "auto"]), rule_lists, st.sampled_from(TOOLS), arguments)
def test_always_allows_what_it_was_asked_for(profile: str, listed: list[events.Rule], tool: str, args: Any) -> None:
    book = policy.Policy(profile, listed)
    judgement = judge_call(book, tool, args)

    if judgement.always is not None:
        assert judgement.ruling is Ruling.ASK
        assert not judgement.destructive
        assert judge_call(book.with_grant(judgement.always), tool, args).ruling is Ruling.ALLOW


@settings(max_examples=100)
@given(rule_lists, st.sampled_from(TOOLS), arguments)
def test_the_profiles_go_from_strict_to_loose(listed: list[events.Rule], tool: str, args: Any) -> None:
    judgements = [rank_verdict(policy.Policy(profile, listed), tool, args) for profile in policy.PROFILES]

    assert judgements == sorted(judgements, reverse=True)
