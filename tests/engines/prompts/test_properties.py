"""Whatever a message or a file says, nothing is raised, nothing gets out, and what calls for nothing stays as it is."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.engines.agent.prompts import expansion, files, templates
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog

anything = st.text(st.characters(codec=None))
SPECIAL = ("@", "/", ".", "..", '"', "'", ":", "1", "-", "9", " ", "\n", "\0", "~", "$1", "$", "\\", "é", "\ud800", "(", ")", ",")
NAMES = ("a.py", "src", "src/", "/go ", "/skill ", ".env", "out", "pipe", "ARGUMENTS", "{{args}}", "---\n", "name: x\n", "# ")
pieces = st.sampled_from((*SPECIAL, *NAMES))
messages = st.one_of(anything, st.lists(pieces, max_size=30).map("".join))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ws-") as name:
        root = Path(name, "workspace")
        for inner in ("src", ".tower/prompts", ".tower/skills"):
            (root / inner).mkdir(parents=True)
        (root / "a.py").write_text("one\ntwo\n")
        (root / "src" / "a.py").write_text("inner")
        (root / ".env").write_text("HUSH")
        (root / "out").symlink_to("..")
        (root / ".tower/prompts/go.md").write_text("Go to $1 with $ARGUMENTS and @a.py, {{args}}")
        (root / ".tower/skills/skill.md").write_text("A skill with @a.py")
        Path(name, "secret").write_text("HUSH")
        yield root


@given(text=messages)
def test_no_message_raises_and_no_message_gets_a_secret_out(folder: Path, text: str) -> None:
    expanded = PromptCatalog(folder / "src").expand_message(text, str(folder))

    assert isinstance(expanded, expansion.MessageExpansion)
    assert "HUSH" not in expanded.text
    assert expanded.sources or expanded.problems or expanded.text == text


@given(text=messages.filter(lambda text: "@" not in text and not text.startswith("/")))
def test_a_message_that_calls_for_nothing_is_unchanged(folder: Path, text: str) -> None:
    assert PromptCatalog(None).expand_message(text, str(folder)) == expansion.MessageExpansion(text)


@given(text=messages)
def test_mentions_only_add_behind_the_message(folder: Path, text: str) -> None:
    if not text.startswith("/"):
        assert PromptCatalog(None).expand_message(text, str(folder)).text.startswith(text)


@given(content=st.binary(max_size=300), text=messages)
def test_no_file_raises_wherever_it_is_used(content: bytes, text: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ws-") as name:
        root = Path(name)
        (root / ".tower" / "prompts").mkdir(parents=True)
        (root / ".tower" / "skills").mkdir(parents=True)
        for path in ("AGENTS.md", ".tower/prompts/p.md", ".tower/skills/s.md"):
            (root / path).write_bytes(content)
        shelf = PromptCatalog(root)

        assert shelf.build_system_prompt(name, tools=("run",), policy="ask", sandbox="local", headless=False).encode()
        assert {template.name for template in shelf.list_templates(name)} <= {"p", "s", "x"}
        assert isinstance(shelf.expand_message(f"/p {text}", name), expansion.MessageExpansion)
        assert isinstance(shelf.expand_message(f"/s {text}", name), expansion.MessageExpansion)
        assert isinstance(shelf.expand_message("@AGENTS.md", name), expansion.MessageExpansion)


@given(kind=st.just("file"), text=anything, path=anything)
def test_a_block_is_two_lines_around_exactly_the_text(kind: str, text: str, path: str) -> None:
    opening, inner = files.quote_block(kind, text, path=path).split("\n", 1)
    mark = re.fullmatch(r'<file path=".*" mark="([0-9a-f]{16})">', opening)

    assert mark
    assert inner == f'{text.removesuffix(chr(10))}\n</file mark="{mark[1]}">'
    assert mark[1] not in text


@given(text=messages, arguments=messages)
def test_what_was_written_behind_a_name_is_never_lost(text: str, arguments: str) -> None:
    filled = expansion.fill_template(text, arguments)

    assert len(expansion.split_arguments(arguments)) <= 9
    if "$" not in text:
        assert arguments in filled


@given(text=messages)
def test_front_matter_and_body_make_up_the_file(text: str) -> None:
    fields, body = templates.split_front_matter(text)

    assert text.endswith(body)
    assert body == text or fields or text.startswith("---")
