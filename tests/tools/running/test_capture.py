"""Head and tail of a stream, however it is cut into chunks."""

import os
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import redact
from switchtower.tools import safe_text


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(min_value=2, max_value=50))
def test_nothing_is_lost_below_the_limit_and_the_count_is_right_above_it(chunks: list[bytes], keep_bytes: int) -> None:
    stream = b"".join(chunks).replace(b"\n", b"").translate(bytes(32 + code % 90 for code in range(256)))
    kept = safe_text.HeadAndTail(keep_bytes)
    start = 0
    for chunk in chunks:
        kept.add(stream[start : start + len(chunk)])
        start += len(chunk)

    if len(stream) <= keep_bytes:
        assert kept.render() == stream.decode()
    else:
        head, note, tail = kept.render().split("\n")
        assert stream.startswith(head.encode())
        assert stream.endswith(tail.encode())
        assert len(head) + len(tail) >= keep_bytes * 3 // 4
        assert note == f"[… {len(stream) - len(head) - len(tail)} bytes left out …]"


KEY = "-----BEGIN PRIVATE KEY-----\n" + "".join(f"{'aB3dE6gH' * 8}\n" for _ in range(20)) + "-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize("secret", ["ghp_aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6", "password: hunter2-correct-horse", KEY])
def test_no_cut_shows_the_rest_of_a_secret(secret: str) -> None:
    hidden = secret.removeprefix("ghp_").removeprefix("password: ").removeprefix("-----BEGIN PRIVATE KEY-----\n")[:26]
    for before in range(0, 3_000, 31):
        kept = safe_text.HeadAndTail(4_096)
        kept.add(("." * 60 + "\n").encode() * 40 + b"x" * (before % 61) + b"\n")
        kept.add((":" * 60 + "\n").encode() * (before // 61) + secret.encode() + ("-" * 60 + "\n").encode() * 49)
        shown = redact.Redactor().redact_text(kept.render())
        assert [at for at in range(len(hidden) - 5) if hidden[at : at + 6] in shown] == [], before


def test_a_character_cut_in_two_at_the_seam_leaves_no_debris() -> None:
    kept = safe_text.HeadAndTail(40)
    kept.add(("✓" * 40).encode())

    assert kept.render() == "✓\n[… 110 bytes left out …]\n✓"


@given(
    st.lists(st.binary(max_size=40), max_size=20),
    st.integers(min_value=0, max_value=50),
    st.integers(min_value=0, max_value=200),
)
def test_a_spool_has_the_whole_of_a_long_stream_up_to_its_limit(chunks: list[bytes], keep_bytes: int, limit: int) -> None:
    stream = b"".join(chunks)
    with tempfile.TemporaryFile() as file:
        spool = safe_text.SpillingCapture(keep_bytes, file.fileno(), spill_limit=limit)
        plain = safe_text.HeadAndTail(keep_bytes)
        for chunk in chunks:
            spool.add(chunk)
            plain.add(chunk)
        written = os.pread(file.fileno(), 10_000, 0)

    assert written == (stream[:limit] if len(stream) > keep_bytes else b"")
    assert spool.spilled == len(written)
    assert spool.render() == plain.render()
