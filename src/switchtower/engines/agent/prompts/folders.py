"""Where skills and prompts lie, and what their places call them. Looks at names only; no file is opened here.

A prompt is `NAME.md`. A skill is `NAME.md`, or `NAME/SKILL.md` with whatever else it needs beside it. A folder in between
becomes the first part of the name: `git/commit.md` is `git:commit`.
"""

import re
from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

from switchtower.engines.agent.prompts import reading

TemplateKind = Literal["prompt", "skill"]

FOLDERS: dict[TemplateKind, str] = {"prompt": "prompts", "skill": "skills"}
PART = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MOST_SCANNED = 500
MOST_PARTS = 4
_SUFFIX = ".md"
_SKILL_FILE = "SKILL.md"


class TemplateFile(NamedTuple):
    """A file that may be a template."""

    parts: tuple[str, ...]
    path: str


def find_template_files(folder: reading.PromptFolder, top: str, kind: TemplateKind) -> Iterator[TemplateFile]:
    """From the outer folders to the inner ones, sorted, until enough names have been looked at."""
    waiting: deque[TemplateFile] = deque([TemplateFile((), top)])
    left = MOST_SCANNED
    while waiting and left > 0:
        parts, path = waiting.popleft()
        try:
            listing = reading.list_folder(folder, path, most=left)
        except reading.PromptFileError:
            continue
        left -= len(listing.entries)
        if kind == "skill" and parts and any(entry.name == _SKILL_FILE for entry in listing.entries):
            yield TemplateFile(parts, f"{path}/{_SKILL_FILE}")
            continue
        if len(parts) == MOST_PARTS:
            continue
        for entry in listing.entries:
            name = entry.name.removesuffix(_SUFFIX)
            if not PART.fullmatch(name):
                continue
            if name != entry.name:
                yield TemplateFile((*parts, name), f"{path}/{entry.name}")
            elif entry.kind != "file":
                waiting.append(TemplateFile((*parts, name), f"{path}/{entry.name}"))
