"""`@path` in a message brings a file in, and what only looks like it is left alone."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchtower.engines.agent.prompts import expansion, files
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog

BlocksOf = Callable[[str], list[Any]]


def test_a_mentioned_file_follows_the_message_and_the_message_keeps_its_words(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    expanded = prompt_catalog.expand_message("what does @src/app.py do?", str(workspace))

    assert expanded.text.startswith("what does @src/app.py do?\n\n<file ")
    (block,) = read_prompt_blocks(expanded.text)
    assert (block.kind, block.attributes, block.text) == ("file", {"path": "src/app.py"}, "print('app')")
    assert expanded.sources == ("src/app.py",)
    assert expanded.problems == ()


@pytest.mark.parametrize(
    "message",
    [
        "@a.py",
        "see @a.py.",
        "see @a.py, then go on",
        "(@a.py)",
        "[@a.py]:",
        "is it @a.py?!",
        "**@a.py**",
        "`@a.py`",
        "'@a.py'",
        "@a.py's lines",
        "first line\n@a.py\nlast line",
        "@./a.py",
        "@src/../a.py",
        '@"a.py"',
        "请看@a.py。",
        "@a.py;",
        "@a.py:",
        "@a.py…",
    ],
)
def test_the_sentence_around_a_mention_is_not_a_part_of_its_path(
    prompt_catalog: PromptCatalog, workspace: Path, message: str
) -> None:
    expanded = prompt_catalog.expand_message(message, str(workspace))

    assert expanded.sources == ("a.py",)
    assert expanded.text.startswith(message)
    assert "line 100" in expanded.text


@pytest.mark.parametrize(
    "message",
    [
        "write to me@a.py",
        "me.too@a.py",
        "@property\ndef x(self): ...",
        "@app.route('/')",
        "@missing.py",
        "@missing/",
        "@src",
        "@a.py/",
        "@",
        "@@a.py",
        r"\@a.py",
        "@ a.py",
        "@...",
        "@..",
        '@""',
        '@"a.py',
        "import { Button } from '@/components/button'",
        "npm install foo/@a.py",
        "@a.py:x",
        "@/etc/passwd",
        "@id_generator",
        "@" + "x" * 5000,
        "@" + "x/" * 500,
        "@nul\0byte",
        "@\udcff\ud800",
    ],
)
def test_what_is_no_mention_or_leads_to_nothing_is_left_without_a_word(
    prompt_catalog: PromptCatalog, workspace: Path, message: str
) -> None:
    expanded = prompt_catalog.expand_message(message, str(workspace))

    assert expanded.text == message
    assert expanded.sources == ()
    assert expanded.problems == ()


def test_names_that_end_in_punctuation_are_found_when_nothing_shorter_is(prompt_catalog: PromptCatalog, workspace: Path) -> None:
    (workspace / "app" / "(group)").mkdir(parents=True)
    (workspace / "app" / "(group)" / "[id]").write_text("routed")

    assert prompt_catalog.expand_message("see (@app/(group)/[id]).", str(workspace)).sources == ("app/(group)/[id]",)


def test_a_name_with_spaces_stands_in_quotes(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    (workspace / "name with spaces.txt").write_text("one\ntwo\nthree\n")

    (whole,) = read_prompt_blocks(prompt_catalog.expand_message('read @"name with spaces.txt", please', str(workspace)).text)
    assert whole.text == "one\ntwo\nthree"
    (some,) = read_prompt_blocks(prompt_catalog.expand_message('read @"name with spaces.txt":2-3.', str(workspace)).text)
    assert (some.text, some.attributes["lines"]) == ("two\nthree", "2-3")


@pytest.mark.parametrize(
    ("mention", "lines"),
    [
        ("@a.py:10-12", ["line 10", "line 11", "line 12"]),
        ("see @a.py:7.", ["line 7"]),
        ("@a.py:99-5000", ["line 99", "line 100"]),
        ("@a.py:1-1", ["line 1"]),
    ],
)
def test_a_range_brings_in_those_lines(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf, mention: str, lines: list[str]
) -> None:
    (block,) = read_prompt_blocks(prompt_catalog.expand_message(mention, str(workspace)).text)

    assert block.text.split("\n") == lines


@pytest.mark.parametrize("range_", ["0", "101", "40-10", "999999999-999999999"])
def test_a_range_with_no_lines_in_it_is_a_problem(prompt_catalog: PromptCatalog, workspace: Path, range_: str) -> None:
    expanded = prompt_catalog.expand_message(f"@a.py:{range_}", str(workspace))

    assert expanded.sources == ()
    assert "it has no lines" in expanded.problems[0]
    assert expanded.problems[0] in expanded.text


def test_lines_far_into_a_long_file_are_found_and_ones_beyond_the_scan_are_not(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    with (workspace / "long.log").open("w") as file:
        file.writelines(f"{number:09}\n" for number in range(1, 1_000_001))

    (block,) = read_prompt_blocks(prompt_catalog.expand_message("@long.log:700000-700002", str(workspace)).text)
    assert block.text == "000700000\n000700001\n000700002"
    assert prompt_catalog.expand_message("@long.log:999999", str(workspace)).problems
    # From line to line across the seams of the blocks that it is read in.
    (block,) = read_prompt_blocks(prompt_catalog.expand_message("@long.log:6550-6560", str(workspace)).text)
    assert block.text == "\n".join(f"{number:09}" for number in range(6550, 6561))


def test_a_file_that_is_named_like_a_range_can_be_mentioned(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    (workspace / "odd:10-12").write_text("odd")

    (block,) = read_prompt_blocks(prompt_catalog.expand_message("@odd:10-12", str(workspace)).text)
    assert (block.attributes["path"], block.text) == ("odd:10-12", "odd")


def test_a_folder_with_a_slash_behind_it_is_listed(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    (workspace / "src" / "inner").mkdir()
    (workspace / "src" / "link").symlink_to("app.py")
    (workspace / "src" / "new\nline").touch()

    (block,) = read_prompt_blocks(prompt_catalog.expand_message("@src/", str(workspace)).text)
    assert (block.kind, block.attributes) == ("folder", {"path": "src/"})
    assert block.text.split("\n") == ["app.py", "inner/", "link@", "new\\nline"]
    (root,) = read_prompt_blocks(prompt_catalog.expand_message("@./", str(workspace)).text)
    assert root.attributes == {"path": "./"}
    assert root.text.split("\n") == ["a.py", "src/"]


def test_an_empty_folder_and_an_endless_one_say_so(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    (workspace / "empty").mkdir()
    (workspace / "full").mkdir()
    for number in range(expansion.MOST_LISTED + 1):
        (workspace / "full" / str(number)).touch()

    empty, full = read_prompt_blocks(prompt_catalog.expand_message("@empty/ @full/", str(workspace)).text)
    assert empty.text == "[empty folder]"
    assert len(full.text.split("\n")) == expansion.MOST_LISTED
    assert full.attributes["cut"] == f"{expansion.MOST_LISTED} of its names"


def test_a_file_comes_in_once_however_often_and_however_it_is_named(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    (workspace / "link.py").symlink_to("src/app.py")

    message = f"@src/app.py @src/app.py @./src/app.py @link.py @{workspace}/src/app.py"
    expanded = prompt_catalog.expand_message(message, str(workspace))
    assert len(read_prompt_blocks(expanded.text)) == 1
    assert expanded.sources == ("src/app.py",)


def test_a_file_that_is_named_again_takes_no_more_room(prompt_catalog: PromptCatalog, workspace: Path) -> None:
    (workspace / "full").write_text("x" * expansion.FILE_LIMIT)

    expanded = prompt_catalog.expand_message("@full @./full @././full @src/../full @.//full @a.py", str(workspace))
    assert expanded.sources == ("full", "a.py")
    assert expanded.problems == ()


def test_a_problem_that_is_met_again_is_told_once(prompt_catalog: PromptCatalog, workspace: Path) -> None:
    (workspace / ".env").touch()

    assert len(prompt_catalog.expand_message("@.env or @.env", str(workspace)).problems) == 1


def test_two_ranges_of_one_file_are_two_blocks_and_one_source(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    expanded = prompt_catalog.expand_message("@a.py:1 @a.py:3 @a.py:1", str(workspace))

    assert [block.text for block in read_prompt_blocks(expanded.text)] == ["line 1", "line 3"]
    assert expanded.sources == ("a.py",)


def test_a_long_file_is_cut_at_a_whole_character_and_says_so(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    (workspace / "long.txt").write_text("x" + "é" * expansion.FILE_LIMIT)

    (block,) = read_prompt_blocks(prompt_catalog.expand_message("@long.txt", str(workspace)).text)
    assert block.text == "x" + "é" * (expansion.FILE_LIMIT // 2 - 1)
    assert block.attributes["cut"] == f"the first {expansion.FILE_LIMIT} bytes of {2 * expansion.FILE_LIMIT + 1} bytes"


def test_a_file_of_exactly_the_limit_is_whole(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    (workspace / "full.txt").write_text("x" * expansion.FILE_LIMIT)

    (block,) = read_prompt_blocks(prompt_catalog.expand_message("@full.txt", str(workspace)).text)
    assert "cut" not in block.attributes
    assert len(block.text) == expansion.FILE_LIMIT


def test_a_range_longer_than_the_limit_is_cut(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    (workspace / "wide.txt").write_text("first\n" + "y" * (3 * expansion.FILE_LIMIT))

    (block,) = read_prompt_blocks(prompt_catalog.expand_message("@wide.txt:2-9", str(workspace)).text)
    assert block.text == "y" * expansion.FILE_LIMIT
    assert "cut" in block.attributes


def test_a_message_brings_in_so_many_files_and_no_more(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    for number in range(expansion.MOST_FILES + 30):
        (workspace / f"f{number}").write_text("small")

    expanded = prompt_catalog.expand_message(
        " ".join(f"@f{number}" for number in range(expansion.MOST_FILES + 30)), str(workspace)
    )
    assert len(read_prompt_blocks(expanded.text)) == len(expanded.sources) == expansion.MOST_FILES
    assert len(expanded.problems) == expansion.MOST_PROBLEMS + 1
    assert expanded.problems[0] == f"`f20` was not brought in: a message brings in {expansion.MOST_FILES} files at most"
    assert expanded.problems[-1] == "10 more were not brought in"


def test_a_message_brings_in_so_many_bytes_and_no_more(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    for number in range(6):
        (workspace / f"f{number}").write_text("é" * (expansion.FILE_LIMIT // 2))

    expanded = prompt_catalog.expand_message("@f0 @f1 @f2 @f3 @f4 @f5 @a.py:1", str(workspace))
    assert expanded.sources == ("f0", "f1", "f2", "f3")
    assert sum(len(block.text.encode()) for block in read_prompt_blocks(expanded.text)) == expansion.TOTAL_LIMIT
    assert len(expanded.problems) == 3


@pytest.mark.parametrize("name", [".env", "key.pem", ".ssh/config", "deep/id_rsa"])
def test_a_file_of_secrets_is_not_brought_in_under_any_name(prompt_catalog: PromptCatalog, workspace: Path, name: str) -> None:
    (workspace / name).parent.mkdir(exist_ok=True)
    (workspace / name).write_text("HUSH")
    (workspace / "plain.txt").symlink_to(name)

    for mention in (f"@{name}", f'@"{name}"', "@plain.txt", f"@{name}:1", f"@{workspace}/{name}", f"@src/../{name}"):
        expanded = prompt_catalog.expand_message(mention, str(workspace))
        assert expanded.sources == ()
        assert "HUSH" not in expanded.text
        (problem,) = expanded.problems
        assert "holds secrets" in problem
        assert expanded.text == f"{mention}\n\n[{problem}]"


@pytest.mark.parametrize(
    "mention", ["@../outside.txt", "@src/../../outside.txt", "@out.txt", "@way/outside.txt", "@way/", "@../"]
)
def test_nothing_outside_the_workspace_is_brought_in(prompt_catalog: PromptCatalog, workspace: Path, mention: str) -> None:
    (workspace / "out.txt").symlink_to("../outside.txt")
    (workspace / "way").symlink_to("..")

    expanded = prompt_catalog.expand_message(mention, str(workspace))
    assert expanded.sources == ()
    assert "OUTSIDE" not in expanded.text
    assert "user" not in expanded.text.splitlines()
    assert len(expanded.problems) == 1


def test_what_is_no_text_is_not_brought_in_and_a_pipe_hangs_nobody(prompt_catalog: PromptCatalog, workspace: Path) -> None:
    (workspace / "picture").write_bytes(b"\x89PNG\0\0")
    (workspace / "latin").write_bytes("caf\xe9".encode("latin-1"))
    (workspace / "huge").touch()
    os.truncate(workspace / "huge", 1 << 40)
    os.mkfifo(workspace / "pipe")
    os.mknod(workspace / "socket", stat.S_IFSOCK | 0o600)

    expanded = prompt_catalog.expand_message("@picture @latin @huge @huge:5 @pipe @socket", str(workspace))
    assert expanded.sources == ()
    assert [problem.split(": ", 1)[0] for problem in expanded.problems] == [
        f"`{name}` was not brought in" for name in ("picture", "latin", "huge", "huge", "pipe", "socket")
    ]
    assert "binary" in expanded.problems[0]
    assert "UTF-8" in expanded.problems[1]
    assert "not a regular file" in expanded.problems[4]


def test_a_byte_order_mark_is_not_a_part_of_the_text(
    prompt_catalog: PromptCatalog, workspace: Path, read_prompt_blocks: BlocksOf
) -> None:
    (workspace / "bom.txt").write_bytes(b"\xef\xbb\xbfhello")

    (block,) = read_prompt_blocks(prompt_catalog.expand_message("@bom.txt", str(workspace)).text)
    assert block.text == "hello"


def test_a_file_that_nobody_may_read_is_a_problem(workspace: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (workspace / "closed").touch(mode=0o000)

    assert expansion.expand_mentions(["@closed"], str(workspace)).problems


def test_what_a_file_mentions_is_not_brought_in(prompt_catalog: PromptCatalog, workspace: Path) -> None:
    (workspace / "b.md").write_text("see @a.py and @src/app.py")

    expanded = prompt_catalog.expand_message("@b.md", str(workspace))
    assert expanded.sources == ("b.md",)
    assert "line 1" not in expanded.text


@pytest.mark.parametrize("root", ["", "/not/there", "relative", "nul\0byte", "\ud800"])
def test_a_workspace_that_is_not_there_brings_nothing_in_and_is_no_problem_here(prompt_catalog: PromptCatalog, root: str) -> None:
    expanded = prompt_catalog.expand_message("@a.py @src/ @.env", root)

    assert (expanded.text, expanded.sources, expanded.problems) == ("@a.py @src/ @.env", (), ())
    assert prompt_catalog.expand_message("@../x", root).sources == ()


def test_no_folder_or_file_is_left_open(prompt_catalog: PromptCatalog, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / ".env").touch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    prompt_catalog.expand_message(
        "@a.py @a.py:3 @a.py:300 @src/ @src/app.py/ @pipe @.env @../x @missing @src/missing/x", str(workspace)
    )

    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("piece", ["@", "@a ", "@a.py ", "@{} ", '@"', '@"x ', '@"@', "(@", "@.", "@:1-", "@.env{} "])
def test_a_megabyte_of_mentions_is_looked_at_and_not_followed_for_ever(
    prompt_catalog: PromptCatalog, workspace: Path, piece: str
) -> None:
    message = "".join(piece.format(number) for number in range(100_000)).ljust(1 << 20)
    looked_up = expansion.MOST_LOOKUPS

    expanded = prompt_catalog.expand_message(message, str(workspace))
    assert expanded.text.startswith(message)
    assert len(expanded.text) - len(message) < 4096
    assert any(f"first {looked_up} names" in problem for problem in expanded.problems) == ("{}" in piece)


def test_reading_stops_where_it_said(workspace: Path) -> None:
    folder = files.PromptFolder(str(workspace))

    assert files.read_document(folder, "a.py", limit=10).text == "line 1\nlin"
    assert files.read_document(folder, "a.py", limit=10, lines=files.LineRange(2, 90)).text == "line 2\nlin"
    assert len(files.list_folder(folder, ".", most=1).entries) == 1
