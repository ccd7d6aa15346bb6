"""A preset's file says what it means, or the complaint names the key."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import events, redact
from switchtower.engines.agent import presets

WHOLE = """
description = "Looks  a change over"
system = "You are a reviewer."
provider = "anthropic"
model = "claude"
policy = "read-only"
thinking = "high"

[budget]
max_turns = 20
max_cost = 1

[mcpServers.github]
command = "npx"
args = ["-y", "server"]
env = { TOKEN = "${GITHUB_TOKEN}" }
timeout = 2020-01-01
"""


def parse(text: str, origin: presets.PresetOrigin = "user") -> presets.PresetDefinition:
    return presets.parse_preset(text, origin, redact.Redactor())


def get_complaint(text: str, origin: presets.PresetOrigin = "user") -> str:
    with pytest.raises(presets.InvalidPreset) as unusable:
        parse(text, origin)
    return str(unusable.value)


@pytest.mark.parametrize("origin", ["user", "workspace"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_preset_says_what_a_session_begins_with(origin: presets.PresetOrigin, line_end: str) -> None:
    assert parse(WHOLE.replace("\n", line_end), origin) == presets.PresetDefinition(
        description="Looks a change over",
        system="You are a reviewer.",
        provider="anthropic",
        model="claude",
        policy="read-only",
        thinking="high",
        budget=events.Budget(max_turns=20, max_cost=1.0),
        servers={"github": {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "${GITHUB_TOKEN}"}}},
    )


def test_an_empty_file_is_a_preset_that_leaves_everything_open() -> None:
    assert parse("") == presets.PresetDefinition()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('polcy = "ask"', "there is no key `polcy`; hint: use some of description, system"),
        ("[budget]\nturns = 3", "there is no key `budget.turns`; hint: use some of max_turns, max_tokens"),
        ("model = 5", "`model` is not of the right type: expected `str | null`, got `int`"),
        ('budget = "much"', "`budget` is not of the right type"),
        ("[budget]\nmax_turns = 1.5", "`budget.max_turns` is not of the right type"),
        ("[budget]\nmax_turns = 0", "`budget.max_turns` is not above 0"),
        ("[budget]\nmax_cost = nan", "`budget.max_cost` is not above 0"),
        ("[budget]\nmax_minutes = inf", "`budget.max_minutes` is not above 0"),
        ("[mcpServers.x]\nargs = [5]", "`mcpServers.x.args[0]` is not of the right type"),
        ("mcpServers = []", "`mcpServers` is not of the right type"),
        ('thinking = "hard"', "`thinking` cannot be `hard`; hint: use one of off, minimal"),
        ('policy = "none"', "`policy` cannot be `none`; hint: use one of read-only, ask, auto, yolo"),
        ('provider = ""', "`provider` is not a name"),
        ('model = "a\\u0000b"', "`model` is not a name"),
        ('system = "a"\nsystem_file = "b"', "`system` and `system_file` exclude each other"),
        ('system = "  "', "`system` is empty"),
        ('model = "a', "it is not TOML: "),
        ("a = 1\na = 2", "it is not TOML: "),
        ("a = " + "[" * 20_000, "it is not TOML that can be read"),
        ("\n".join(f'[mcpServers.s{number}]\ncommand = "x"' for number in range(33)), "`mcpServers` has more than 32 servers"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(text: str, told: str) -> None:
    assert get_complaint(text).startswith(told)


@pytest.mark.parametrize("policy", ["auto", "yolo"])
def test_a_workspace_may_not_decide_that_less_is_asked(policy: str) -> None:
    assert parse(f'policy = "{policy}"', "user").policy == policy
    told = get_complaint(f'policy = "{policy}"', "workspace")
    assert told.startswith(f"`policy` is `{policy}`, and a file of the workspace may not")
    assert "read-only or ask" in told


def test_a_system_text_has_its_limit_in_bytes() -> None:
    most = presets.SYSTEM_LIMIT
    assert parse(f'system = "{"x" * most}"').system == "x" * most
    assert get_complaint(f'system = "{"x" * (most + 1)}"') == "`system` is longer than 64 KiB"
    assert get_complaint(f'system = "{"é" * (most // 2 + 1)}"') == "`system` is longer than 64 KiB"


def test_a_secret_is_refused_and_not_repeated() -> None:
    secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    told = get_complaint(f'[mcpServers.github]\ncommand = "x"\nenv = {{ TOKEN = "{secret}" }}')
    assert told.startswith("`mcpServers.github.env.TOKEN` seems to hold a secret; hint: set a variable")
    assert secret not in told


def test_a_secret_that_only_the_daemon_knows_is_refused_as_well() -> None:
    text = '[mcpServers.x]\ncommand = "x"\nargs = ["plainest-of-words"]'
    assert parse(text).servers
    with pytest.raises(presets.InvalidPreset, match="seems to hold a secret"):
        presets.parse_preset(text, "user", redact.Redactor(["plainest-of-words"]))


@pytest.mark.parametrize(
    "text",
    [
        "a." * 32_000 + "b = 1",
        "x = {" + "a." * 32_000 + "b = 1}",
        "[a." + "b." * 1_000 + "c]",
    ],
)
def test_a_key_that_would_keep_the_parser_busy_is_not_given_to_it(text: str) -> None:
    """The first of them takes it 20 s."""
    assert get_complaint(text).startswith("a line has more than 100 dots")


@given(text=st.text() | st.sampled_from(WHOLE.split()).map(lambda word: WHOLE.replace(word, "0", 1)))
def test_any_text_is_a_preset_that_weakens_nothing_or_a_complaint(text: str) -> None:
    with suppress(presets.InvalidPreset):
        assert parse(text, "workspace").policy in (None, "read-only", "ask")
