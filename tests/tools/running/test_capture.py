"""Head and tail of a stream, however it is cut into chunks."""

import os
import tempfile

from hypothesis import given
from hypothesis import strategies as st

from switchtower.tools.running import capture


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(min_value=2, max_value=50))
def test_nothing_is_lost_below_the_limit_and_the_count_is_right_above_it(chunks: list[bytes], keep_bytes: int) -> None:
    stream = b"".join(chunks).replace(b"\n", b"").translate(bytes(32 + code % 90 for code in range(256)))
    kept = capture.HeadAndTail(keep_bytes)
    start = 0
    for chunk in chunks:
        kept.add(stream[start : start + len(chunk)])
        start += len(chunk)

    if len(stream) <= keep_bytes:
        assert kept.text() == stream.decode()
    else:
        head, note, tail = kept.text().split("\n")
        assert head == stream[: keep_bytes // 2].decode()
        assert tail == stream[len(stream) - (keep_bytes - keep_bytes // 2) :].decode()
        assert note == f"[… {len(stream) - keep_bytes} bytes left out …]"


def test_a_character_cut_in_two_at_the_seam_leaves_no_debris() -> None:
    kept = capture.HeadAndTail(10)
    kept.add("✓✓✓✓✓✓✓✓".encode())

    assert kept.text() == "✓\n[… 14 bytes left out …]\n✓"


@given(
    st.lists(st.binary(max_size=40), max_size=20),
    st.integers(min_value=0, max_value=50),
    st.integers(min_value=0, max_value=200),
)
def test_a_spool_has_the_whole_of_a_long_stream_up_to_its_limit(chunks: list[bytes], keep_bytes: int, limit: int) -> None:
    stream = b"".join(chunks)
    with tempfile.TemporaryFile() as file:
        spool = capture.Spool(keep_bytes, file.fileno(), spill_limit=limit)
        plain = capture.HeadAndTail(keep_bytes)
        for chunk in chunks:
            spool.add(chunk)
            plain.add(chunk)
        written = os.pread(file.fileno(), 10_000, 0)

    assert written == (stream[:limit] if len(stream) > keep_bytes else b"")
    assert spool.spilled == len(written)
    assert spool.text() == plain.text()
