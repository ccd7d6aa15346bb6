"""Every kind of secret in the corpus is hidden, whole and in pieces; harmless texts stay."""

import random
import re
import string
import tomllib
from pathlib import Path
from typing import Any

import pytest

from switchtower.core import redact

CORPUS = Path(__file__).parent / "corpus"
KINDS: list[dict[str, str]] = tomllib.loads((CORPUS / "secret_kinds.toml").read_text())["secret"]
HARMLESS: list[dict[str, Any]] = tomllib.loads((CORPUS / "harmless_texts.toml").read_text())["text"]
MOST_HIDDEN = 6
PIECES = (1, 2, 3, 5, 7, 16)

ALPHABETS = {
    "alnum": string.ascii_letters + string.digits,
    "letters": string.ascii_letters,
    "lower": string.ascii_lowercase + string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "digits": string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "word": string.ascii_letters + string.digits + "_-",
    "base64": string.ascii_letters + string.digits + "+/",
    "bcrypt": string.ascii_letters + string.digits + "./",
    "bech32": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}
PLACE = re.compile(r"<(~?)(\w+):(\d+)>")
REDACTOR = redact.Redactor()


def sample(kind: dict[str, str]) -> tuple[str, list[str]]:
    """A line with a secret of this kind, and the parts of it that must not be shown."""
    drawn = random.Random(kind["kind"])
    parts: list[str] = []

    def draw(place: re.Match[str]) -> str:
        alphabet = ALPHABETS[place[2]]
        text = "".join(drawn.choice(alphabet) for _ in range(int(place[3])))
        if len(text) > 3 and not text.strip(string.ascii_lowercase + "_-"):
            text = text[:2] + alphabet[-1] + text[3:]
        if not place[1] and len(text) >= 6:
            parts.append(text)
        return text

    value = PLACE.sub(draw, kind["value"])
    return kind.get("line", "see {} there").format(value), parts


def find_leaks(output: str, parts: list[str]) -> list[str]:
    """Any six characters in a row of a hidden part."""
    return [part[at : at + 6] for part in parts for at in range(len(part) - 5) if part[at : at + 6] in output]


def test_the_corpus_is_as_large_as_the_audit_was() -> None:
    assert len({kind["kind"] for kind in KINDS}) >= 130
    assert len({text["text"] for text in HARMLESS}) >= 49


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["kind"])
def test_a_secret_is_hidden_whole_and_in_pieces(kind: dict[str, str]) -> None:
    line, parts = sample(kind)
    whole = REDACTOR.redact_text(f"before\n{line}\nafter")
    assert parts
    assert find_leaks(whole, parts) == []
    assert whole.startswith("before\n")
    assert whole.endswith("after")
    for size in PIECES:
        stream = REDACTOR.open_stream()
        text = f"before\n{line}\nafter"
        pieces = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size)) + stream.close()
        assert pieces == whole, size


def test_harmless_texts_stay() -> None:
    hidden = [text["text"] for text in HARMLESS if REDACTOR.redact_text(text["text"]) != text["text"]]
    assert len(hidden) <= MOST_HIDDEN, hidden
    for text in HARMLESS:
        stream = REDACTOR.open_stream()
        in_pieces = "".join(map(stream.feed, text["text"])) + stream.close()
        assert in_pieces == REDACTOR.redact_text(text["text"])
