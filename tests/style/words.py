"""Searches our prose for the constructions of `words.toml`, and compares the hits of each file with `words_allowed.tsv`.

Prose is a docstring, a comment, a string of at least two words (help, errors, labels), the text of a Markdown file, and the
comments, strings and visible text of the web page. Code spans, code blocks, block quotes, raw strings and generated files do
not count.

    python -m tests.style.words           # fails when a file has more hits than allowed, or fewer than written down
    python -m tests.style.words --list    # prints every hit: [FILE …] narrows it
    python -m tests.style.words --write   # writes the new, lower counts down
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).with_name("words.toml")
ALLOWED = Path(__file__).with_name("words_allowed.tsv")

_PYTHON = re.compile(
    r"""(?P<prefix>\b[rRbBfFuU]{1,2})?(?P<string>\"{3}(?:[^"\\]|\\.|"(?!""))*\"{3}|'{3}(?:[^'\\]|\\.|'(?!''))*'{3}"""
    r"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<comment>\#[^\n]*)""",
    re.DOTALL,
)
_SCRIPT = re.compile(
    r"""(?P<comment>/\*.*?\*/|(?<![:\w"'`\\])//[^\n]*)|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`""", re.DOTALL
)
_SCRIPT_BLOCK = re.compile(r"<(script|style)\b[^>]*>(.*?)</\1>", re.DOTALL)
_MARKUP = re.compile(
    r"""(?P<comment><!--.*?-->)|>(?P<text>[^<>]+)(?=<)|"(?P<attribute>[^"<>]*)"|`(?P<template>[^`]*)`""", re.DOTALL
)
_MARKDOWN_CODE = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)[^\n]*$|^ {0,3}>[^\n]*$|``.+?``|`[^`]*`|\]\([^)]*\)|<[a-z/!][^>]*>",
    re.DOTALL | re.MULTILINE,
)
_CODE_SPAN = re.compile(r"``.+?``|`[^`\n]*(?:\n[^`\n]*)?`")
_FIELD = re.compile(r"\$?\{[^{}]*\}")
_TWO_WORDS = re.compile(r"[A-Za-z][,.:;!?]?\s+[A-Za-z]")
_COMMENT_MARKS = re.compile(r"^[ \t]*(?:#+:?|//+|/?\*+/?|<!--|-->)[ \t]?", re.MULTILINE)


@dataclass(frozen=True)
class Word:
    """One forbidden construction."""

    name: str
    pattern: str
    scope: str
    instead: str
    caught: tuple[str, ...]
    fine: tuple[str, ...]


@dataclass(frozen=True)
class Prose:
    """A piece of text, the line where it starts, and whether a reader sees its first word as the start of a sentence."""

    text: str
    line: int
    opens: bool = False


@dataclass(frozen=True)
class Hit:
    path: str
    line: int
    word: Word
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word.name}: “{self.text}” (use: {self.word.instead})"


class WordList:
    """The constructions of `words.toml`, compiled into two regular expressions."""

    def __init__(self, data: Path = DATA) -> None:
        table = tomllib.loads(data.read_text("utf-8"))
        self.include: list[str] = table["files"]["include"]
        self.generated: list[str] = table["files"]["generated"]
        self.quoted: list[str] = [entry["text"] for entry in table.get("quoted", [])]
        self.words = [
            Word(**{**entry, "caught": tuple(entry["caught"]), "fine": tuple(entry["fine"])}) for entry in table["word"]
        ]
        self._sentence = self._compile("sentence", re.IGNORECASE)
        self._opening = self._compile("opening", 0)
        self._quoted = re.compile("|".join(re.escape(text) for text in self.quoted) or r"(?!)", re.IGNORECASE)

    def _compile(self, scope: str, flags: int) -> re.Pattern[str]:
        entries = [f"(?P<w{number}>{word.pattern})" for number, word in enumerate(self.words) if word.scope == scope]
        return re.compile("|".join(entries), flags)

    def find(self, prose: Prose, path: str = "") -> Iterator[Hit]:
        text = self._quoted.sub(" … ", " ".join(prose.text.split()))
        after = 0
        for found in self._sentence.finditer(text):
            after = _find_again(found.group(), prose.text, after)
            yield self._make_hit(found, prose, path, after)
        if prose.opens and (opening := self._opening.match(text)):
            yield self._make_hit(opening, prose, path, 0)

    def _make_hit(self, found: re.Match[str], prose: Prose, path: str, place: int) -> Hit:
        assert found.lastgroup is not None
        line = prose.line + prose.text.count("\n", 0, place)
        return Hit(path, line, self.words[int(found.lastgroup[1:])], found.group()[:60])


def _find_again(words: str, text: str, after: int) -> int:
    """Returns the end of the words in a text whose white space was collapsed when they were found."""
    found = re.compile(r"\s+".join(re.escape(word) for word in words.split())).search(text, after)
    return found.end() if found else after


@cache
def load_words() -> WordList:
    return WordList()


def list_files(words: WordList, root: Path = ROOT) -> list[Path]:
    generated = {path for pattern in words.generated for path in root.glob(pattern)}
    return sorted({path for pattern in words.include for path in root.glob(pattern) if path.is_file()} - generated)


def find_hits(paths: Iterable[Path], words: WordList, root: Path = ROOT) -> list[Hit]:
    found: list[Hit] = []
    for path in paths:
        name = path.relative_to(root).as_posix()
        for prose in extract_prose(path.read_text("utf-8"), path.suffix):
            found.extend(words.find(prose, name))
    return found


def extract_prose(text: str, suffix: str) -> Iterator[Prose]:
    match suffix:
        case ".py":
            return _extract_python(text)
        case ".md":
            return iter([Prose(_MARKDOWN_CODE.sub(_blank, text), 1)])
        case ".svelte" | ".html":
            return _extract_markup(text)
        case ".ts" | ".js" | ".css":
            return _extract_script(text)
        case _:
            raise ValueError(f"no prose is known for {suffix}")


def _extract_python(text: str) -> Iterator[Prose]:
    """Yields docstrings, blocks of comments, and strings; neighbouring strings are one text, as Python joins them."""
    pieces: list[str] = []
    started = ended = 0
    kind = ""
    for found in _PYTHON.finditer(text):
        start = found.start()
        if comment := found["comment"]:
            piece, found_kind = _COMMENT_MARKS.sub("", comment), "comment"
            gap = text[ended:start]
            joins = kind == "comment" and gap.isspace() and gap.count("\n") == 1 and _starts_line(text, start)
        else:
            body = found["string"]
            quotes = 3 if body[:3] in {'"""', "'''"} else 1
            piece = body[quotes:-quotes]
            if (prefix := (found["prefix"] or "").lower()) and ("r" in prefix or "b" in prefix):
                piece = ""
            found_kind = "docstring" if quotes == 3 and _starts_line(text, start) else "string"
            joins = kind == "string" and found_kind == "string" and not text[ended:start].strip()
        if joins:
            pieces.append(piece)
        else:
            yield from _close_python(pieces, kind, text, started)
            pieces, kind, started = [piece], found_kind, start
        ended = found.end()
    yield from _close_python(pieces, kind, text, started)


def _close_python(pieces: list[str], kind: str, text: str, started: int) -> Iterator[Prose]:
    if not pieces:
        return
    joined = ("\n" if kind == "comment" else "").join(pieces)
    if kind == "comment" and joined.startswith(("noqa", "type:", "!", "fmt:", "pragma")):
        return
    prose = _CODE_SPAN.sub(_blank, joined)
    if kind == "string":
        if not _TWO_WORDS.search(prose):
            return
        prose = _FIELD.sub("…", prose.replace("\\n", " "))
    yield Prose(prose, text.count("\n", 0, started) + 1, opens=kind != "string")


def _extract_script(text: str, first_line: int = 1) -> Iterator[Prose]:
    for found in _SCRIPT.finditer(text):
        line = text.count("\n", 0, found.start()) + first_line
        if comment := found["comment"]:
            yield Prose(_CODE_SPAN.sub(_blank, _COMMENT_MARKS.sub("", comment)).strip(" */"), line, opens=True)
        elif _TWO_WORDS.search(found.group()):
            yield Prose(_FIELD.sub("…", found.group()[1:-1]), line)


def _extract_markup(text: str) -> Iterator[Prose]:
    for block in _SCRIPT_BLOCK.finditer(text):
        yield from _extract_script(block[2], text.count("\n", 0, block.start(2)) + 1)
    visible = _SCRIPT_BLOCK.sub(_blank, text)
    for found in _MARKUP.finditer(visible):
        line = visible.count("\n", 0, found.start()) + 1
        if comment := found["comment"]:
            yield Prose(_COMMENT_MARKS.sub("", comment), line, opens=True)
        elif (shown := found["text"] or found["attribute"] or found["template"]) and _TWO_WORDS.search(shown):
            yield Prose(_FIELD.sub(lambda field: " ".join(re.findall(r"'[^']*'", field[0])), shown), line)


def _starts_line(text: str, place: int) -> bool:
    return not text[text.rfind("\n", 0, place) + 1 : place].strip()


def _blank(found: re.Match[str]) -> str:
    """Replaces code by one mark and keeps its line breaks, so that line numbers stay right."""
    return "…" + "\n" * found.group().count("\n")


def count_hits(hits: Iterable[Hit]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for hit in hits:
        counts[hit.path] = counts.get(hit.path, 0) + 1
    return dict(sorted(counts.items()))


def read_allowed(path: Path = ALLOWED) -> dict[str, int]:
    rows = (line.split("\t") for line in path.read_text("utf-8").splitlines() if line)
    return {name: int(count) for name, count in rows}


def write_allowed(counts: dict[str, int], path: Path = ALLOWED) -> None:
    """Writes the counts down. A total that is higher than before is refused: the list may only shrink."""
    before = sum(read_allowed(path).values()) if path.exists() else None
    if before is not None and (now := sum(counts.values())) > before:
        raise SystemExit(f"{now} hits, {before} are allowed. Rewrite the new ones: python -m tests.style.words --list")
    path.write_text("".join(f"{name}\t{count}\n" for name, count in sorted(counts.items())), "utf-8")


def compare(counts: dict[str, int], allowed: dict[str, int]) -> tuple[list[str], list[str]]:
    """Returns the files with more hits than allowed, and the files with fewer."""
    names = sorted({*counts, *allowed})
    worse = [name for name in names if counts.get(name, 0) > allowed.get(name, 0)]
    better = [name for name in names if counts.get(name, 0) < allowed.get(name, 0)]
    return worse, better


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.style.words", description="Check the words of our prose.")
    parser.add_argument("--list", action="store_true", help="print every hit")
    parser.add_argument("--write", action="store_true", help="write the new, lower counts down")
    parser.add_argument("files", nargs="*", type=Path, help="only these files, with --list")
    options = parser.parse_args(arguments)
    words = load_words()
    chosen = [path.resolve() for path in options.files] or list_files(words)
    hits = find_hits(chosen, words)
    if options.list:
        print(*hits, f"{len(hits)} hits", sep="\n")
        return 0
    if options.write:
        write_allowed(count_hits(hits))
        print(f"{len(hits)} hits are allowed now")
        return 0
    allowed = read_allowed()
    worse, better = compare(count_hits(hits), allowed)
    for hit in hits:
        if hit.path in worse:
            print(hit)
    for name in worse:
        print(f"{name}: {count_hits(hits)[name]} hits, {allowed.get(name, 0)} allowed. Rewrite the new ones.")
    if better:
        print(f"{len(better)} files have fewer hits than written down. Run: python -m tests.style.words --write")
    if not worse and not better:
        print(f"Words: {len(hits)} hits in {len(allowed)} files, as allowed")
    return 1 if worse or better else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
