"""The policy against its corpora: every command has its expected answer, and every difference is reported.

Pure and fast, so all of it runs each time. `corpus/rules_*.toml` say what each corpus is about.
"""

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from switchtower.core import events, policy

WORKSPACE = "/work/repo"
CORPUS = Path(__file__).parent / "corpus"

Case = tuple[policy.Policy, str, str]
"""A policy, a command, and the expected answer."""


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((CORPUS / name).read_text())


def _list_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def _ask_with(*commands: str) -> policy.Policy:
    return policy.Policy("ask", [events.Rule("allow", command=command) for command in commands])


def _list_differences(cases: Iterable[Case]) -> list[str]:
    found = []
    for under, command, expected in cases:
        judgement = under.judge("run", {"command": command}, "execute", WORKSPACE)
        if judgement.ruling != expected or "could not be judged" in judgement.reason:
            found.append(f"{command!r} under {under.profile}: {judgement.ruling.value} ({judgement.reason}), expected {expected}")
    return found


def _load_tools() -> Iterator[Case]:
    for name, answers in _read("rules_tools.toml").items():
        under = _ask_with(name if " " in name else f"{name} *")
        for expected, commands in answers.items():
            for command in _list_lines(commands):
                yield under, command, expected


def test_a_wildcard_covers_everyday_use_of_tools_and_nothing_that_runs_loads_sends_or_writes() -> None:
    cases = list(_load_tools())
    tools = {name.split()[0] for name in _read("rules_tools.toml")}

    assert _list_differences(cases) == []
    assert len({command for _, command, _ in cases}) >= 980
    assert len(tools) >= 90
    assert {expected for _, _, expected in cases} == {"allow", "ask"}


def _make_reader() -> Iterator[tuple[str, str]]:
    corpus = _read("rules_reader.toml")
    for technique in corpus.values():
        if isinstance(technique, dict):
            for expected, templates in technique.items():
                for template in templates:
                    for payload in corpus["payloads"] if "{}" in template else [""]:
                        yield template.replace("{}", payload), expected


def test_the_reader_of_shell_commands_is_not_misled() -> None:
    rules = _read("rules_reader.toml")["rules"]
    cases = list(_make_reader())

    assert _list_differences((_ask_with(*rules), command, expected) for command, expected in cases) == []
    assert len({command for command, _ in cases}) >= 279


def test_read_only_runs_none_of_them() -> None:
    rules = [events.Rule("allow", command=command) for command in _read("rules_reader.toml")["rules"]]

    assert _list_differences((policy.Policy("read-only", rules), command, "deny") for command, _ in _make_reader()) == []


def _load_mutations() -> Iterator[Case]:
    corpus = _read("rules_always.toml")
    for command in corpus["commands"]:
        rule = _ask_with().judge("run", {"command": command}, "execute", WORKSPACE).always
        assert rule is not None, command
        under = _ask_with().with_grant(rule)
        for expected in ("allow", "ask"):
            for template in corpus[expected]:
                yield under, template.replace("{}", command), expected


def test_always_is_good_for_the_command_in_its_folder_with_its_input() -> None:
    cases = list(_load_mutations())

    assert _list_differences(cases) == []
    assert len(cases) >= 512


def _load_denied() -> Iterator[Case]:
    for about, answers in _read("rules_deny.toml").items():
        kind, _, pattern = about.partition(":")
        rule = events.Rule("deny", command=pattern) if kind == "command" else events.Rule("deny", path=pattern)
        for expected, commands in answers.items():
            for command in _list_lines(commands):
                yield policy.Policy("yolo", [rule]), command, expected


def test_a_rule_that_denies_holds_in_yolo() -> None:
    cases = list(_load_denied())

    assert _list_differences(cases) == []
    assert len({command for _, command, expected in cases if expected != "allow"}) >= 135


def _load_steering() -> Iterator[tuple[str, str]]:
    for expected, files in _read("rules_steering.toml").items():
        yield from ((file, expected) for file in _list_lines(files))


def test_under_auto_a_write_to_what_other_tools_obey_is_asked_about() -> None:
    found = []
    for file, expected in _load_steering():
        for path in (file, f"deep/er/{file}", f"./{file}", f"src/../{file}", f"{WORKSPACE}/{file}"):
            for tool in ("write_file", "edit_file"):
                answer = policy.Policy("auto").judge(tool, {"path": path}, "write", WORKSPACE).ruling.value
                if answer != expected:
                    found.append(f"{tool} {path}: {answer}, expected {expected}")
    assert found == []


def test_under_auto_a_redirection_to_what_other_tools_obey_is_asked_about() -> None:
    under = policy.Policy("auto", [events.Rule("allow", command="ls *")])
    files = [file for file, expected in _load_steering() if expected == "ask"]

    assert _list_differences((under, f"ls > '{file}'", "ask") for file in files) == []
    assert (
        _list_differences((under, f"ls > '{file}'", "allow") for file, expected in _load_steering() if expected == "allow") == []
    )
