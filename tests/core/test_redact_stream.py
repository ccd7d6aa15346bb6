"""A stream gives what the whole text gives, however it is cut; it lets prose go at once and keeps little of anything."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchtower.core import redact
from switchtower.core.redact import start_patterns

KNOWN = ("correct horse battery", "correct horse batteries", 'qu"oted\\value', "aaaaaaaab")
REDACTOR = redact.Redactor(KNOWN)

FRAGMENTS = (
    *(
        "sk-",
        "sk-ant-api03-",
        "ghp_",
        "github_pat_",
        "glpat-",
        "sk_live_",
        "AIza",
        "AKIA",
        "ABCDEFGH1234",
        "xoxb-",
        "att_",
        "eyJ",
    ),
    *("abcdefgh", "12345678", "hunter2", "swordfish", "string", "dXNlcjpwYXNz", "01JCQ8Z5W3", "x" * 70, "y9" * 40, "z" * 300),
    *("Bearer", "bearer ", "BEARER\t", "Authorization", "Basic ", "--password ", "--api-key", "--"),
    *("password", "PASSWORD", "api_key", "apiKey", "token", "secret", "key", "db-", "client_secret", ": str"),
    *("=", ":", "::", " = ", ": ", ":=", "=>", "://", "https://", "@", "/", "user", "q@" * 140),
    *(
        '"',
        "'",
        "`",
        '\\"',
        "\\",
        "\\\\",
        "\\n",
        "%3D",
        "\x1b[32m",
        "**",
        "$VAR",
        "${",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        ",",
        ";",
        "&",
    ),
    *(" ", "  ", "\t", "\n", "\r\n", " " * 9, ".", "...", "-", "_", "é", "0", "a", "s", "m", "be"),
    *("-----", "-----BEGIN ", "PRIVATE KEY", "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----", "+" * 20),
    *("-----BEGIN PRIVATE KEY-----\n", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "in the files of the repo we see ", "END "),
    *("correct", " horse", " battery", " batteri", "aaaa", "aaaaaaaa", "b", *KNOWN, redact.MARK),
)
TEXTS = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join),
    st.text(alphabet='sk-ghp_=: "\\.xA1aeyJb\n@/[]', max_size=60),
    st.text(max_size=40),
)


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    text = draw(TEXTS)
    if draw(st.booleans()):
        return list(text)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


@settings(max_examples=200, deadline=None)
@given(cut_texts())
def test_any_cut_of_any_text_comes_out_as_the_whole_does(pieces: list[str]) -> None:
    stream = REDACTOR.open_stream()
    assert "".join(map(stream.feed, pieces)) + stream.close() == REDACTOR.redact_text("".join(pieces))


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = REDACTOR.redact_text(text)
    assert REDACTOR.redact_text(once) == once


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS)
def test_a_closed_stream_is_as_new(first: str, second: str) -> None:
    stream = REDACTOR.open_stream()
    stream.feed(first)
    stream.close()
    assert stream.feed(second) + stream.close() == REDACTOR.redact_text(second)


def test_prose_goes_at_once_or_one_word_late() -> None:
    prose = "A bear at sea has to be as brave as the github user who ate all the best sk and - so it is said - the key: a fish."
    stream = REDACTOR.open_stream()
    fed = released = ""
    for word in prose.split():
        before, fed = fed, f"{fed}{word} "
        released += stream.feed(f"{word} ")
        assert fed.startswith(released)
        assert len(released) >= len(before)


def test_ordinary_words_go_at_once() -> None:
    stream = redact.Redactor().open_stream()
    for piece in ["Hello", " world", ", said", " she", "\n\n", "```", "def", " load", "(self", "):", "\n    "]:
        assert stream.feed(piece) == piece


def test_a_name_and_its_sign_go_before_the_value_is_known() -> None:
    stream = REDACTOR.open_stream()
    assert [stream.feed(piece) for piece in ("API", "_KEY", "=", "1a2b", "3c4d", "\n")] == [
        "API",
        "_KEY",
        "=",
        "",
        "",
        "[redacted]\n",
    ]


def test_a_token_is_marked_as_soon_as_it_is_certain_and_its_rest_is_dropped() -> None:
    stream = REDACTOR.open_stream()
    assert [stream.feed(piece) for piece in ("my ", "gh", "p_1234", "5678", "9abc", "def", " ok")] == [
        "my ",
        "",
        "",
        "[redacted]",
        "",
        "",
        " ok",
    ]


def test_a_private_key_is_marked_at_its_first_line_and_text_goes_on_after_its_last() -> None:
    stream = REDACTOR.open_stream()
    assert stream.feed("so: -----BEGIN PRIVATE KEY-----") == "so: "
    assert stream.feed("\nMIIEvQ") == "[redacted]"
    assert stream.feed("\nIBADANBgkqhkiG9w0BAQEFAASC" * 100) == ""
    assert stream.feed("\n-----END PRIVATE") == ""
    assert stream.feed(" KEY-----\nbye") == "\nbye"


OPENINGS = [
    "",
    "sk-",
    "ghp_",
    "eyJ",
    "password=",
    'password="',
    "token: /",
    "Bearer ",
    "https://user:",
    "-----BEGIN PRIVATE KEY-----\n",
    "correct horse ",
]


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("unit", ["x", "a1", "@", "-", "\\", "=", "correct horse batter"])
def test_a_megabyte_without_an_end_is_not_kept(opening: str, unit: str) -> None:
    piece = unit * (5_000 // len(unit))
    stream = REDACTOR.open_stream()
    stream.feed(opening + piece)
    tracemalloc.start()
    try:
        for _ in range(1_000_000 // len(piece)):
            stream.feed(piece)
        # Only what redaction itself keeps: other tests' threads may still be at work in this process.
        own = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/core/redact/*")])
    finally:
        tracemalloc.stop()
    assert sum(trace.size for trace in own.traces) < 16_000


@pytest.mark.parametrize("opening", ["-----", "--", "sk-", "ghp_", "eyJ", "password", "AKIA", "xoxb-"])
def test_a_token_whose_body_begins_like_another_secret_stays_hidden_in_single_characters(opening: str) -> None:
    for prefix in start_patterns.PREFIXES:
        text = f"see {prefix}{opening}{'aB3d' * 12} and more"
        stream = REDACTOR.open_stream()
        assert "".join(map(stream.feed, text)) + stream.close() == REDACTOR.redact_text(text)
