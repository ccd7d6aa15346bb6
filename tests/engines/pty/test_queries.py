"""What programs ask of their terminal: each question has its answer, which comes once, and nobody else is shown the question."""

import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.pty.test_engine import PtyHarness

from switchtower.engines.pty import output

CURSOR = (4, 9)
COLS = 80
ANSWERS = {
    "\x1b[6n": "\x1b[5;10R",
    "\x1b[?6n": "\x1b[?5;10R",
    "\x1b[5n": "\x1b[0n",
    "\x1b[c": "\x1b[?62;22c",
    "\x1b[0c": "\x1b[?62;22c",
    "\x1b[>c": "\x1b[>0;10;0c",
    "\x1b[>0c": "\x1b[>0;10;0c",
    "\x1b[?2026$p": "\x1b[?2026;0$y",
    "\x1b[?1$p": "\x1b[?1;0$y",
    "\x1b]10;?\x07": "\x1b]10;rgb:dddd/dddd/dddd\x1b\\",
    "\x1b]10;?\x1b\\": "\x1b]10;rgb:dddd/dddd/dddd\x1b\\",
    "\x1b]11;?\x07": "\x1b]11;rgb:0000/0000/0000\x1b\\",
    "\x1b]11;?\x1b\\": "\x1b]11;rgb:0000/0000/0000\x1b\\",
    "\x1b[?u": "",
    "\x1b[>q": "",
    "\x1b[>0q": "",
}
NO_QUERIES = (
    *("\x1b[6m", "\x1b[n", "\x1b[4n", "\x1b[16n", "\x1b[66n", "6n", "[6n", "\x1b[ 6n", "\x1b6n"),
    *("\x1b[1c", "\x1b[00c", "\x1b[?c", "\x1b[=c", "\x1b[?62;22c", "\x1b[>0;10;0c", "\x1b[5;10R", "\x1b[0n"),
    *("\x1b[?p", "\x1b[?$p", "\x1b[2026$p", "\x1b[?123456$p", "\x1b[?2026;0$y", "\x1b[?2026h"),
    *("\x1b]10;#fff\x07", "\x1b]12;?\x07", "\x1b]1;?\x07", "\x1b]10;?", "\x1b]0;title\x07", "\x1b]10;rgb:0/0/0\x1b\\"),
    *("\x1b[u", "\x1b[>1u", "\x1b[<u", "\x1b[q", "\x1b[1q", "\x1b[2 q", "\x1b[>1q", "\x1b[", "\x1b", ""),
)


def answer_queries(text: str, cursor: tuple[int, int] = CURSOR) -> list[str]:
    return [output.answer_query(query, cursor, COLS) for query in output.QUERY.finditer(text)]


@pytest.mark.parametrize(("query", "answer"), ANSWERS.items(), ids=repr)
def test_each_question_has_its_answer(query: str, answer: str) -> None:
    assert answer_queries(query) == [answer]
    assert answer_queries(f"before{query}after") == [answer]
    assert output.QUERY.sub("", f"before{query}after") == "beforeafter"


@pytest.mark.parametrize("text", NO_QUERIES, ids=repr)
def test_nothing_else_is_a_question(text: str) -> None:
    assert answer_queries(text) == []


@pytest.mark.parametrize("answer", sorted(set(ANSWERS.values()) - {""}), ids=repr)
def test_an_answer_is_no_question(answer: str) -> None:
    assert answer_queries(answer) == []


@pytest.mark.parametrize("query", ANSWERS, ids=repr)
def test_a_part_of_a_question_is_left_as_it_is(query: str) -> None:
    for cut in range(len(query)):
        assert answer_queries(query[:cut]) == []
        assert answer_queries(query[cut + 1 :]) == [] or query[cut + 1 :] in ANSWERS


@given(st.lists(st.sampled_from((*ANSWERS, "text", "\r\n", "\x1b[31m", "ü"))))
def test_questions_in_a_row_are_answered_in_order(pieces: list[str]) -> None:
    assert answer_queries("".join(pieces)) == [ANSWERS[piece] for piece in pieces if piece in ANSWERS]


@given(st.text(alphabet="\x1b[]?>0156;cnpqu$\x07\\a"))
def test_whatever_comes_an_answer_is_one_we_know(text: str) -> None:
    mode = re.compile(r"\x1b\[\?[0-9]{1,5};0\$y")
    assert all(answer in ANSWERS.values() or mode.fullmatch(answer) for answer in answer_queries(text))


@pytest.mark.parametrize(
    ("cursor", "answer"), [((0, 0), "1;1"), ((39, 79), "40;80"), ((39, 80), "40;80")], ids=["first", "last", "beyond"]
)
def test_the_cursor_is_counted_from_one_and_never_beyond_the_edge(cursor: tuple[int, int], answer: str) -> None:
    """After the last column of a line was written, the cursor waits beyond it."""
    assert answer_queries("\x1b[6n", cursor) == [f"\x1b[{answer}R"]


# Through a real program

ASKS = """
import os, sys, termios, tty
before = termios.tcgetattr(0)
tty.setraw(0)
def ask(query, ends, count=1):
    os.write(1, query * count)
    heard = b""
    while heard.count(ends) < count:
        heard += os.read(0, 65536)
    return heard
"""
SAYS = """
os.write(1, repr(heard).encode() + b"|done")
os.read(0, 1)
"""


@pytest.fixture
async def pty_harness(tmp_path: Path) -> AsyncIterator[PtyHarness]:
    made = PtyHarness(tmp_path)
    await made.open()
    yield made
    await made.runtime.stop()
    await made.journal.close()


async def run_script(stage: PtyHarness, script: str) -> str:
    """What is journalled up to the program's last word. It goes on until it is typed at, so that a second answer would end it."""
    program = await stage.run([sys.executable, "-c", f"{ASKS}\n{script}\n{SAYS}"])
    await program.wait_for_text("|done")
    assert "run.completed" not in program.kinds
    await program.send_keys("q")
    assert (await program.end()).exit_code == 0
    assert not output.QUERY.search(program.output)
    return program.output


async def test_a_program_is_told_where_its_cursor_is(pty_harness: PtyHarness) -> None:
    script = 'os.write(1, b"one\\r\\ntwo"); heard = ask(b"\\x1b[6n", b"R")'
    assert await run_script(pty_harness, script) == "one\r\ntwob'\\x1b[2;4R'|done"


async def test_a_program_that_asks_byte_by_byte_is_answered_as_well(pty_harness: PtyHarness) -> None:
    script = 'for byte in b"\\x1b[6": os.write(1, bytes([byte]))\nheard = ask(b"n", b"R")'
    assert await run_script(pty_harness, script) == "b'\\x1b[1;1R'|done"


async def test_a_program_is_told_of_colours_and_kind_in_the_order_it_asked(pty_harness: PtyHarness) -> None:
    script = 'heard = ask(b"\\x1b]11;?\\x07\\x1b[?u\\x1b[>q\\x1b[c", b"c")'
    assert await run_script(pty_harness, script) == "b'\\x1b]11;rgb:0000/0000/0000\\x1b\\\\\\x1b[?62;22c'|done"


async def test_thousands_of_questions_at_once_are_each_answered_once(pty_harness: PtyHarness) -> None:
    script = 'heard = ask(b"\\x1b[5n", b"n", 4000); heard = heard.count(b"\\x1b[0n"), len(heard)'
    assert await run_script(pty_harness, script) == "(4000, 16000)|done"


async def test_questions_that_nobody_waits_for_do_not_hold_the_program_up(pty_harness: PtyHarness) -> None:
    """It asks and never reads: the answers that find no room are let go, and what it says goes on."""
    program = await pty_harness.run("stty raw -echo; for n in $(seq 4000); do printf '\\033[6n'; done; printf finished")
    await program.end()
    assert program.output == "finished"
