"""A workspace and a user's folder with real files, and a strict reader of the blocks that a prompt holds."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from switchtower.engines.agent.prompts.system_prompt import PromptCatalog

_OPENING = re.compile(r'^<([a-z-]+)((?: [a-z]+="(?:[^"\\]|\\.)*")*) mark="([0-9a-f]{16})">$', re.MULTILINE)
_ATTRIBUTE = re.compile(r' ([a-z]+)="((?:[^"\\]|\\.)*)"')


class PromptBlock(Struct, frozen=True):
    kind: str
    attributes: dict[str, str]
    text: str


def read_blocks(text: str) -> list[PromptBlock]:
    """As the system prompt tells a model to read them: only the line with the same mark ends a block."""
    found: list[PromptBlock] = []
    position = 0
    while opening := _OPENING.search(text, position):
        closing = f'\n</{opening[1]} mark="{opening[3]}">'
        end = text.index(closing, opening.end())
        found.append(PromptBlock(opening[1], dict(_ATTRIBUTE.findall(opening[2])), text[opening.end() + 1 : end]))
        position = end + len(closing)
        assert text[position : position + 1] in ("", "\n"), "the closing line has nothing behind it"
    return found


@pytest.fixture
def read_prompt_blocks() -> Callable[[str], list[PromptBlock]]:
    return read_blocks


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("print('app')\n")
    (root / "a.py").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    (tmp_path / "outside.txt").write_text("OUTSIDE")
    return root


@pytest.fixture
def user_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


@pytest.fixture
def prompt_catalog(user_folder: Path) -> PromptCatalog:
    return PromptCatalog(user_folder)


@pytest.fixture
def write_file() -> Callable[[Path, str], None]:
    """Writes a file together with the folders on the way to it."""

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write
