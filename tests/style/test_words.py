"""The prose of the repository has no more forbidden constructions than are written down, and the search finds each of them."""

import re
from pathlib import Path

import pytest
from tests.style.words import (
    DATA,
    Prose,
    Word,
    WordList,
    compare,
    count_hits,
    extract_prose,
    find_hits,
    list_files,
    load_words,
    read_allowed,
    write_allowed,
)

WORDS = load_words()


def hits(text: str, suffix: str) -> list[str]:
    return [hit.text for prose in extract_prose(text, suffix) for hit in WORDS.find(prose)]


def names_of_hits(text: str) -> list[str]:
    return [hit.word.name for hit in WORDS.find(Prose(text, 1, opens=True))]


def test_files_have_exactly_the_hits_that_are_written_down() -> None:
    counts = count_hits(find_hits(list_files(WORDS), WORDS))
    worse, better = compare(counts, read_allowed())
    assert worse == [], "new hits; see `python -m tests.style.words`"
    assert better == [], "fewer hits, good; write that down: `python -m tests.style.words --write`"


@pytest.mark.parametrize("word", WORDS.words, ids=lambda word: word.name)
def test_each_construction_is_caught(word: Word) -> None:
    assert word.caught
    for text in word.caught:
        assert names_of_hits(text).count(word.name) == 1, text


@pytest.mark.parametrize("word", WORDS.words, ids=lambda word: word.name)
def test_ordinary_sentences_are_not_caught(word: Word) -> None:
    assert word.fine
    for text in word.fine:
        assert word.name not in names_of_hits(text), text


@pytest.mark.parametrize("word", WORDS.words, ids=lambda word: word.name)
def test_entries_are_well_formed(word: Word) -> None:
    assert word.scope in {"sentence", "opening"}
    assert word.instead
    assert re.compile(word.pattern)


PYTHON_WITH_HITS = {
    "module docstring": '"""Nobody reads it."""\n',
    "function docstring": 'def f() -> None:\n    """Nobody reads it."""\n',
    "attribute docstring": 'class C:\n    x: int\n    """Nobody reads it."""\n',
    "comment": "x = 1  # nobody reads it\n",
    "comment over two lines": "# The run is under\n# way.\nx = 1\n",
    "help": '@option("--all", help="Whatever nobody reads.")\n',
    "joined strings": 'fail("the run is under "\n     "way")\n',
    "formatted string": 'print(f"nobody reads {path}")\n',
    "assertion": 'assert ok, "nobody is left"\n',
}


@pytest.mark.parametrize("text", PYTHON_WITH_HITS.values(), ids=PYTHON_WITH_HITS.keys())
def test_prose_of_python_is_searched(text: str) -> None:
    assert len(hits(text, ".py")) == 1


PYTHON_WITHOUT_HITS = {
    "name": "nobody = told(who)\n",
    "single word": 'KIND = "told"\n',
    "code span": '"""The field `nobody` of the row."""\n',
    "code span over two lines": '"""The call `tell(\n    who)` of the row."""\n',
    "raw string": 'PATTERN = r"nobody is told"\n',
    "bytes": 'FRAME = b"nobody is told"\n',
    "field of a formatted string": 'print(f"{who} has read the {told}")\n',
    "lint comment": "x = 1  # noqa: who\n",
    "opening inside of a string": 'print("As it was")\n',
}


@pytest.mark.parametrize("text", PYTHON_WITHOUT_HITS.values(), ids=PYTHON_WITHOUT_HITS.keys())
def test_code_and_quotations_are_exempt(text: str) -> None:
    assert hits(text, ".py") == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Nobody reads it.\n", 1),
        ("A run is **under\nway**.\n", 1),
        ("| file | nobody |\n", 1),
        ("The flag `--shall` and ``who`` are code.\n", 0),
        ("```console\n$ tower run --shall\n```\n", 0),
        ("> The document: every node shall answer.\n", 0),
        ("[decision](adr/0001-nobody-is-told.md)\n", 0),
    ],
)
def test_markdown_is_searched_without_its_code_and_block_quotes(text: str, count: int) -> None:
    assert len(hits(text, ".md")) == count


@pytest.mark.parametrize(
    ("text", "suffix", "count"),
    [
        ("// Nobody reads it.\nconst who = told(1);\n", ".ts", 1),
        ("/** Of a run. */\nexport const a = 1;\n", ".ts", 1),
        ("const label = 'Nobody is here';\n", ".ts", 1),
        ("const label = `Nobody reads ${who}`;\n", ".ts", 1),
        ("const url = 'https://example.org/who';\n", ".ts", 0),
        ("<script>\n  let who = 1;\n</script>\n<p>Nobody reads it.</p>\n", ".svelte", 1),
        ('<button title="Nobody reads it">Send</button>\n', ".svelte", 1),
        ("<p>{told.who}</p>\n", ".svelte", 0),
        ("/* Nobody reads it. */\n.who { color: red; }\n", ".css", 1),
    ],
)
def test_prose_of_the_page_is_searched(text: str, suffix: str, count: int) -> None:
    assert len(hits(text, suffix)) == count


def test_texts_of_a_protocol_are_exempt_where_they_are_listed(tmp_path: Path) -> None:
    data = tmp_path / "words.toml"
    data.write_text(
        DATA.read_text("utf-8").replace("quoted = []", 'quoted = [{ text = "Nobody answered", why = "a document" }]'), "utf-8"
    )
    words = WordList(data)
    assert list(words.find(Prose("It sends nobody  answered and continues.", 1))) == []
    assert len(list(words.find(Prose("Nobody reads it.", 1)))) == 1


def test_a_hit_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""Reads frames.\n\nA frame that\nnobody reads.\n"""\n\n# One\n# who reads.\n', "utf-8")
    assert [hit.line for hit in find_hits([file], WORDS, tmp_path)] == [4, 8]


def test_generated_files_are_not_searched() -> None:
    searched = {path.as_posix() for path in list_files(WORDS)}
    assert any(path.endswith("docs/configuration.md") for path in searched)
    assert not any("docs/commands/" in path or path.endswith("docs/develop/map.md") for path in searched)


def test_the_counts_may_only_fall(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed.tsv"
    write_allowed({"a.py": 2, "b.py": 1}, allowed)
    write_allowed({"moved.py": 2}, allowed)
    assert read_allowed(allowed) == {"moved.py": 2}
    with pytest.raises(SystemExit, match="3 hits, 2 are allowed"):
        write_allowed({"moved.py": 3}, allowed)


def test_more_and_fewer_hits_are_both_reported() -> None:
    assert compare({"a": 2, "b": 1, "new": 1}, {"a": 1, "b": 2, "gone": 1}) == (["a", "new"], ["b", "gone"])
