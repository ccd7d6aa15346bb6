"""A secret that arrives in pieces, with a silence after each, is hidden; prompts and ordinary text are shown at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.security.test_secret_kinds import KINDS, find_leaks, sample

from switchtower.core import events, redact

KNOWN = "correct-horse-battery"


def redact_slowly(redactor: redact.Redactor, text: str, size: int) -> str:
    stream = redactor.open_stream()
    shown = ""
    for at in range(0, len(text), size):
        shown += stream.feed(text[at : at + size]) + stream.settle()
    return shown + stream.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["kind"])
def test_a_secret_is_hidden_however_slowly_it_comes(kind: dict[str, str]) -> None:
    line, parts = sample(kind)
    for size in (1, 2, 3, 7, 16):
        shown = redact_slowly(redact.Redactor(), f"before\n{line}\nafter", size)
        assert find_leaks(shown, parts) == [], size
        assert shown.endswith("after")


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_value_of_the_daemon_is_hidden_however_slowly_it_comes(size: int) -> None:
    shown = redact_slowly(redact.Redactor([KNOWN]), f"it is {KNOWN} indeed; coral", size)
    assert "horse" not in shown
    assert "battery" not in shown
    assert shown.endswith(" indeed; coral")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Password: ",
            "Enter passphrase for key '/home/ann/.ssh/id': ",
            "Continue? [y/N] ",
            "ann@host:~/src$ ",
            ">>> ",
            "(gdb) ",
        ),
        *(
            "Token: ",
            "$ g",
            "$ git s",
            "$ npm",
            "$ pip install sk-le",
            "What is your name? ",
            "http://localhost:3000",
            "https://exam",
        ),
        *("Press any key", "API key", "secret", "re", "pa", "Progress: 50%", "50%\r", "a", "-", "--pass", "x = ", "mysql> "),
    ],
)
def test_what_waits_for_a_person_is_shown_at_once(text: str) -> None:
    stream = redact.Redactor([KNOWN]).open_stream()
    assert stream.feed(text) + stream.settle() == text
    assert stream.feed(" and more\n") + stream.close() == " and more\n"


def test_the_pattern_of_the_owner_is_found_over_silences() -> None:
    redactor = redact.Redactor(extra="Zebra[0-9]+")
    assert "77" not in redact_slowly(redactor, "a Zebra77 here\n", 1)
    stream = redactor.open_stream()
    assert stream.feed("name? ") + stream.settle() == "name? "
    assert stream.feed("ann\nZebra5") + stream.settle() == "ann\n"
    assert stream.feed("6\n") == "[redacted]\n"


PIECES = st.lists(
    st.sampled_from(
        [
            *(
                "g",
                "gh",
                "ghp_",
                "sk-",
                "a1b2c3d4",
                "hunter2",
                "password",
                "=",
                ": ",
                "token",
                " ",
                "\n",
                "https://",
                "u:",
                "@h/",
            ),
            *(
                "Bearer",
                "--",
                "-----BEGIN ",
                "PRIVATE KEY-----",
                "correct",
                "-horse",
                "-battery",
                '"',
                "x",
                "é",
                "\\n",
                "m",
                "$2b$",
                "w",
            ),
        ]
    ),
    max_size=20,
)


@settings(max_examples=300)
@given(PIECES, st.randoms(use_true_random=False))
def test_a_silence_changes_only_how_much_of_the_introduction_is_seen(pieces: list[str], drawn: object) -> None:
    """Whatever is let go is in its order, and what follows a mark is never shown because of a silence."""
    redactor = redact.Redactor([KNOWN])
    stream = redactor.open_stream()
    shown = "".join(stream.feed(piece) + stream.settle() for piece in pieces) + stream.close()
    whole = redactor.redact_text("".join(pieces))
    assert shown.replace("[redacted]", "").count("a1b2c3d4a1b2c3d4") <= whole.count("a1b2c3d4a1b2c3d4")
    if "[redacted]" not in whole and "[redacted]" not in shown:
        assert shown == whole


def test_a_secret_that_is_wrapped_on_a_screen_is_hidden() -> None:
    token = "ghp_" + "aB3d" * 9
    rows = [token[at : at + 10] for at in range(0, len(token), 10)]
    text = "".join(f"\x1b[{number};1H{row}" for number, row in enumerate(rows, start=1)) + "\x1b[6;1Hls -la\x1b[7;1H$ "
    taken = redact.Redactor().redact_event(events.ScreenCaptured(text=text, cols=10, rows=8))
    assert isinstance(taken, events.ScreenCaptured)
    assert find_leaks(taken.text, [token[4:]]) == []
    assert taken.text.endswith("\x1b[6;1Hls -la\x1b[7;1H$ ")
    colours = f"\x1b[1;1H\x1b[32m{token[:6]}\x1b[33m{token[6:]}\x1b[0m"
    painted = redact.Redactor().redact_event(events.ScreenCaptured(text=colours, cols=80, rows=8))
    assert isinstance(painted, events.ScreenCaptured)
    assert find_leaks(painted.text, [token[4:]]) == []
