"""The shell reader: what it finds, what it doubts, and that bash agrees with it."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchtower.core.policy import shell

BASH = shutil.which("bash")


def list_commands(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in shell.parse_script(text).commands if command.words]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a&&b||c;d|e&f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("(a; b) | { c; }", [["a"], ["b"], ["c"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("! a", [["a"]]),
        ("a 'b c' \"d e\" f\\ g h''i", [["a", "b c", "d e", "f g", "hi"]]),
        ('a "b\\"c\\$d\\e"', [["a", 'b"c$d\\e']]),
        ("a 'it'\\''s'", [["a", "it's"]]),
        ("X=1 Y='2 3' a Z=4", [["a", "Z=4"]]),
        ("a > b 2>&1 <c", [["a"]]),
        ("> b a", [["a"]]),
        ("a2>b", [["a2"]]),
        ("a 2>b", [["a"]]),
        ("a 1&>b", [["a", "1"]]),
        (">&-a", [["a"]]),
        ("a # b; c\nd", [["a"], ["d"]]),
        ("a#b", [["a#b"]]),
        ("a \\\n b", [["a", "b"]]),
        ("a <<X\nb; c\nX\nd", [["a"], ["d"]]),
        ("a <<'X' | b\n$(c)\nX\nd", [["a"], ["b"], ["d"]]),
        ("a <<X <<-Y\nX\n\tY\nb", [["a"], ["b"]]),
        ("a $?", [["a", "$?"]]),
        ("a $", [["a", "$"]]),
        ("[ -f a ]", [["[", "-f", "a", "]"]]),
        ("a {} {b} c@{1}", [["a", "{}", "{b}", "c@{1}"]]),
    ],
)
def test_commands_are_found_with_certainty(text: str, found: list[list[str]]) -> None:
    assert list_commands(text) == found
    assert not shell.parse_script(text).doubts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a $(b; c)", ["b", "c", "a"]),
        ("a `b \\`c\\``", ["c", "b", "a"]),
        ('a "x $(b) y"', ["b", "a"]),
        ("a ${x:-$(b)}", ["b", "a"]),
        ("a <(b) >(c)", ["b", "c", "a"]),
        ("a <<X\n$(b) `c`\nX", ["a", "b", "c"]),
        ("X=$(a)", ["a"]),
        ("while a; do b; done", ["a", "b"]),
        ("f() { a; }", ["f", "a"]),
        ("a=(b c)", ["b"]),
        ("$(($(a)))", ["a"]),
        ("a 'b", ["a"]),
        ("a )b", ["a", "b"]),
        ("(a; (b; c", ["a", "b", "c"]),
    ],
)
def test_what_is_not_certain_is_found_and_doubted(text: str, found: list[str]) -> None:
    names = [words[0] for words in list_commands(text)]

    assert [name for name in names if name in found] == found
    assert shell.parse_script(text).doubts


@pytest.mark.parametrize(
    ("text", "word"),
    [("a $'\\x62\\143\\u0064\\n'", "bcd\n"), ("a $'it\\'s'", "it's"), ("a $X/b", "$X/b"), ("a ~/b", "~/b")],
)
def test_a_word_keeps_what_can_be_known_of_it(text: str, word: str) -> None:
    assert list_commands(text) == [["a", word]]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a > b", ["b"]),
        ("a >>b", ["b"]),
        ("a &>b", ["b"]),
        ("a >&b", ["b"]),
        ("a 3<>b", ["b"]),
        ("a >|'b c'", ["b c"]),
        ("a >&2 2>&-", []),
        ("a <b", []),
    ],
)
def test_redirections_that_write_are_told_from_those_that_do_not(text: str, written: list[str]) -> None:
    redirects = [redirect for command in shell.parse_script(text).commands for redirect in command.redirects]

    assert [redirect.file for redirect in redirects if redirect.writes and redirect.file is not None] == written


def test_a_pipe_says_who_feeds_whom() -> None:
    script = shell.parse_script("a | { b; c; } |\n d; e | f")

    assert script.pipelines == (((0, 1), (1, 3), (3, 4)), ((4, 5), (5, 6)))


def test_an_expansion_says_whom_it_feeds() -> None:
    script = shell.parse_script('a; b "$(c | d)"')

    assert [command.words[0].text for command in script.commands] == ["a", "c", "d", "b"]
    assert script.commands[3].inner == (1, 3)


@pytest.mark.parametrize(
    "text",
    ["$(" * 500, "(" * 500, "${x:-" * 500, '"$(' * 500, "`" * 501, "a;" * 20_000, "a " * 30_000, ">a" * 20_000, "\\" * 60_000],
)
def test_it_comes_to_an_end_with_any_text(text: str) -> None:
    shell.parse_script(text)


@given(st.text(st.sampled_from("ab $(){}[]<>|&;\"'`\\\n#!*?=~-")))
def test_it_never_fails(text: str) -> None:
    shell.parse_script(text)


@given(st.text())
def test_it_never_fails_on_any_text(text: str) -> None:
    shell.parse_script(text)


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *(
                "aa",
                "bb",
                "-x",
                "1",
                "2",
                "a=1 ",
                "é",
                "'a b'",
                '"a b"',
                "\\ ",
                "\\'",
                '\\"',
                "{}",
                "%",
                "@",
                "~",
                "$",
                ",",
                "..",
                "+",
            ),
            *(" ", " ", " ", "\t", "\n", ";", "&", "&&", "||", "|", "|&", "(", ")", "{ ", "; }", "!", "#", " #"),
            *("if ", "; then ", "; fi", "time ", "do ", "done", "case ", "in ", "a()", "\r", " /dev/null"),
            *("'", '"', "\\", " \\\n", "\\\n", "`", "$(", "${", "}", "{", "[", "]", "="),
            *(">", "<", ">>", "2>", "&>", ">&", "2>&1", "<>", ">|", "<<<"),
            *("<<EOF", "<<'EOF'", "<<-EOF", "\nEOF\n", "\n\tEOF\n"),
        ]
    ),
    min_size=2,
    max_size=12,
).map("".join)


@pytest.mark.skipif(BASH is None, reason="bash is not installed, and it is the one to ask")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much])
@given(text=FRAGMENTS.filter(lambda text: not shell.parse_script(text).doubts))
def test_bash_runs_and_writes_nothing_that_was_not_found(text: str, tmp_path: Path) -> None:
    script = shell.parse_script(text)
    found = [tuple(word.text for word in command.words) for command in script.commands if command.words]
    written = {redirect.file for command in script.commands for redirect in command.redirects if redirect.writes}

    ran, files = observe_bash(text, Path(tempfile.mkdtemp(dir=tmp_path)))

    # `time` is a word of the shell; what a tilde or `$?` becomes is not known before it runs.
    known = {words[start:] for words in found for start in range(len(words)) if start == 0 or words[0] == "time"}
    if not any("~" in word or "$?" in word for words in found for word in words):
        assert ran <= known
    if not any("~" in file for file in written if file is not None):
        assert files <= written


def observe_bash(text: str, folder: Path) -> tuple[set[tuple[str, ...]], set[str | None]]:
    """Runs it where no program can be found, and notes each that bash looks for and each file that it makes."""
    calls, handler, place = folder / "calls", folder / "handler", folder / "place"
    calls.touch()
    place.mkdir()
    handler.write_text('command_not_found_handle() { printf \'%s\\0\' "$#" "$@" >> "$CALLS"; }\n')
    environment = {"PATH": "/nonexistent", "BASH_ENV": str(handler), "CALLS": str(calls)}
    subprocess.run(
        [str(BASH), "-c", text],
        env=environment,
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
    )
    told = calls.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    ran = set()
    while told:
        count = int(told[0])
        ran.add(tuple(told[1 : 1 + count]))
        told = told[1 + count :]
    return ran, {file.name for file in place.iterdir()}


@pytest.mark.skipif(BASH is None, reason="bash is not installed, and it is the one to ask")
def test_bash_is_really_asked(tmp_path: Path) -> None:
    assert observe_bash("aa 'b c' && bb > cc; (dd)", tmp_path) == ({("aa", "b c"), ("bb",), ("dd",)}, {"cc"})
