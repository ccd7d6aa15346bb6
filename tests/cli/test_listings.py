"""`tower models`, `tower skills` and `tower show`: what the daemon answers, in columns and as JSON."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import SESSION, ScriptedDaemon, make_refusal

from switchtower.presentation import session_details
from switchtower.protocols.push import extension_messages, messages


def make_listing(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "provider": name,
        "model": f"{name}-1",
        "usable": True,
        "reason": "",
        "isDefault": False,
        "contextWindow": None,
        "priceIn": None,
        "priceOut": None,
        "keySource": None,
        **changes,
    }


MODELS = [
    make_listing("openai", usable=False, reason="no key: set `OPENAI_API_KEY`", model=None),
    make_listing("ollama", provider="openai-compatible", contextWindow=32_768, reason="answers at 127.0.0.1:11434"),
    make_listing("anthropic", isDefault=True, contextWindow=1_000_000, priceIn=3.0, priceOut=15.0),
    make_listing("odd", usable=False, reason="first line\nsecond \x1b[31mline"),
]


def test_usable_models_come_first_with_the_default_marked_and_the_rest_say_why_not(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["list_models"] = {"models": MODELS}

    ended = tower_command("models")

    assert ended.code == 0
    assert ended.stdout.decode().splitlines() == [
        "*  anthropic  anthropic          anthropic-1  1M   $3/$15  usable",
        "   ollama     openai-compatible  ollama-1     33k  -       usable: answers at 127.0.0.1:11434",
        "   openai     openai             -            -    -       not usable: no key: set `OPENAI_API_KEY`",
        r"   odd        odd                odd-1        -    -       not usable: first line second \x1b[31mline",
    ]


def test_models_as_json_are_the_daemon_s_own_words_in_the_same_order(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["list_models"] = {"models": MODELS}

    assert tower_command("models", "--json").json == [MODELS[2], MODELS[1], MODELS[0], MODELS[3]]


TEMPLATES = [
    {"name": "review", "kind": "prompt", "description": "Looks it over", "path": "/w/r.md", "origin": "workspace"},
    {"name": "deploy", "kind": "skill", "description": "", "path": "/home/d.md", "origin": "user"},
]


def test_skills_are_asked_for_by_the_folder_s_whole_name(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, tmp_path: Path
) -> None:
    scripted_daemon.answers["list_templates"] = {"templates": TEMPLATES}
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    here, there = tower_command("skills"), tower_command("skills", "--cwd", str(tmp_path / "link"), "--json")

    assert here.stdout.decode() == "/review  prompt  workspace  Looks it over\n/deploy  skill   user\n"
    assert there.json == TEMPLATES
    assert scripted_daemon.list_requests("list_templates") == [
        {"rootPath": os.path.realpath(tower_command.folder)},
        {"rootPath": str(tmp_path / "real")},
    ]


PRESETS = [
    {
        "name": "review",
        "origin": "workspace",
        "path": ".tower/presets/review.toml",
        "description": "Looks it over",
        "provider": "anthropic",
        "model": "claude",
        "policy": "read-only",
        "thinking": None,
        "servers": ["github"],
        "usable": True,
        "reason": "",
    },
    {
        "name": "user:review",
        "origin": "user",
        "path": "/home/review.toml",
        "description": "",
        "provider": None,
        "model": None,
        "policy": None,
        "thinking": None,
        "servers": [],
        "usable": False,
        "reason": "`/home/review.toml` cannot be used: \x1b[31mno",
    },
]


def test_presets_are_listed_with_why_one_cannot_be_used(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["list_presets"] = {"presets": PRESETS}

    assert tower_command("presets").stdout.decode().splitlines() == [
        "review       workspace  anthropic claude  read-only  Looks it over",
        r"user:review  user       -                 -          not usable: `/home/review.toml` cannot be used: \x1b[31mno",
    ]
    assert tower_command("presets", "--json").json == PRESETS
    assert scripted_daemon.list_requests("list_presets") == [{"rootPath": os.path.realpath(tower_command.folder)}] * 2


def test_no_presets_is_said_with_where_to_put_one(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["list_presets"] = {"presets": []}

    ended = tower_command("presets")

    assert (ended.code, ended.stdout) == (0, b"")
    assert "`.tower/presets/NAME.toml`" in ended.stderr


def test_no_skills_is_said_with_where_to_put_one(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["list_templates"] = {"templates": []}

    ended = tower_command("skills")

    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr == "no skills, prompts or extensions here; hint: put one in `.tower/prompts/NAME.md`\n"


USAGE = extension_messages.Usage(3, 12_000, 450, 9_000, 0, 0.0123, 0)


def make_info(**changes: Any) -> extension_messages.SessionInfo:
    fields: dict[str, Any] = {
        "sessionId": SESSION,
        "state": "running",
        "title": "Tidy up",
        "mode": "interactive",
        "engine": "agent",
        "provider": "anthropic",
        "model": "claude",
        "thinking": "high",
        "policy": "auto",
        "rules": [
            extension_messages.Rule("allow", "run", None, "make *"),
            extension_messages.Rule("deny", None, "docs/**", None),
        ],
        "limits": messages.Limits(maxTurns=200, maxTokens=5_000, maxCost=2.5, maxMinutes=10.0),
        "sandbox": "bubblewrap",
        "rootPath": "/data/worktrees/x",
        "branch": "tower/x",
        "worktreeOf": "/home/ada/project",
        "activeRunId": "run_9",
        "queue": [extension_messages.QueuedMessage("msg_1", "and then\nthe docs", "follow_up")],
        "usage": USAGE,
        "runUsage": extension_messages.Usage(1, 10, 2, 0, 0, 0.0, 1),
        "contextTokens": 64_000,
        "contextWindow": 200_000,
        "undoable": 1,
        "redoable": 0,
        "version": 7,
        "lastSeq": 120,
        "createdAt": 1_000_000,
        "updatedAt": 7_000_000,
        "preset": "review",
        **changes,
    }
    return extension_messages.SessionInfo(**fields)


def test_a_session_is_shown_with_all_that_is_known_about_it() -> None:
    assert session_details.list_session_details(make_info(), now=7_120.0) == [
        ("session", SESSION),
        ("title", "Tidy up"),
        ("state", "running, run_9"),
        ("preset", "review"),
        ("model", "anthropic claude"),
        ("thinking", "high"),
        ("policy", "auto"),
        ("rules", "allow run: make *\ndeny any tool: docs/**"),
        ("limits of a run", "200 turns, 5,000 tokens, $2.5, 10 minutes"),
        ("sandbox", "bubblewrap"),
        ("folder", "/data/worktrees/x (branch tower/x)\na worktree of /home/ada/project"),
        ("usage", "3 calls, 12,000 tokens in (9,000 from the cache), 450 out, $0.0123"),
        ("usage of the run", "1 call, 10 tokens in, 2 out"),
        ("context", "64,000 of 200,000 tokens (32%)"),
        ("queue", "follow_up: and then the docs"),
        ("undo", "1 run can be undone, 0 made again"),
        ("started", "1 h ago, in the mode interactive, by the engine agent"),
        ("last event", "120, 2 min ago"),
    ]


@pytest.mark.parametrize(("branch", "shown"), [("", "/w"), (None, "/w"), ("HEAD", "/w (a commit, no branch)")])
def test_a_folder_without_a_branch_is_not_shown_with_one(branch: str | None, shown: str) -> None:
    about = make_info(rootPath="/w", branch=branch, worktreeOf=None)

    assert dict(session_details.list_session_details(about, now=7_000.0))["folder"] == shown


def test_what_a_new_session_does_not_have_is_left_out() -> None:
    new = make_info(
        title="",
        state="idle",
        activeRunId=None,
        model=None,
        thinking=None,
        rules=[],
        limits=messages.Limits(),
        branch=None,
        worktreeOf=None,
        queue=[],
        usage=extension_messages.Usage(0, 0, 0, 0, 0, 0.0, 0),
        runUsage=None,
        contextTokens=0,
        contextWindow=None,
        undoable=0,
        preset=None,
    )

    shown = dict(session_details.list_session_details(new, now=7_000.0))

    assert shown.keys() == {
        "session",
        "state",
        "model",
        "policy",
        "sandbox",
        "folder",
        "usage",
        "context",
        "undo",
        "started",
        "last event",
    }
    assert (shown["model"], shown["folder"]) == ("anthropic", "/data/worktrees/x")
    assert (shown["usage"], shown["context"]) == ("no call of a model yet", "0 tokens")


def test_a_price_that_is_known_in_part_is_a_lower_bound() -> None:
    shown = dict(session_details.list_session_details(make_info(usage=extension_messages.Usage(3, 1, 1, 0, 0, 1.5, 2))))

    assert shown["usage"].endswith(", at least $1.50")


def test_show_prints_names_and_values_or_the_whole_object(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    import msgspec

    about = msgspec.to_builtins(make_info(title="\x1b[31mred"))
    scripted_daemon.answers["get_session"] = about

    readable, as_json = tower_command("show", "last"), tower_command("show", SESSION, "--json")

    assert as_json.json == about
    lines = readable.stdout.decode().splitlines()
    assert lines[0] == f"session:          {SESSION}"
    assert lines[1] == r"title:            \x1b[31mred"
    assert lines[7:9] == ["rules:            allow run: make *", "                  deny any tool: docs/**"]
    assert scripted_daemon.list_requests("get_session") == [{"sessionId": SESSION}] * 2


@pytest.mark.parametrize(
    "command",
    [
        ["models"],
        ["skills"],
        ["presets"],
        ["show", "last"],
        ["diff", "last"],
        ["undo", "last"],
        ["compact", "last"],
        ["configure", "last", "--policy", "ask"],
        ["send", "last", "hi", "--steer"],
        ["run", "--headless", "hi", "--policy", "ask"],
        ["run", "--headless", "hi", "--preset", "p"],
        ["run", "--headless", "hi"],
    ],
    ids=" ".join,
)
def test_with_an_older_daemon_running_a_command_says_how_to_get_the_newer_one(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, command: list[str]
) -> None:
    scripted_daemon.capabilities = ["stream_tokens", "approvals"]

    ended = tower_command(*command)

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.count("\n") == 1
    assert "the running daemon is older" in ended.stderr
    assert "hint: stop it with `tower stop`" in ended.stderr


def test_a_daemon_s_refusal_keeps_its_own_remedy(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["list_models"] = make_refusal("INTERNAL_ERROR", "Too much is waiting already; hint: try later")

    assert tower_command("models").stderr == "tower: INTERNAL_ERROR: Too much is waiting already; hint: try later\n"
