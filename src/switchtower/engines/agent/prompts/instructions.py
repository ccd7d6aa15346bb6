"""What files tell an agent about how to work: `AGENTS.md` and `CLAUDE.md` of the workspace, and the user's own
`AGENTS.md`. Files of that name deeper down are only named; an agent that works there can read them.

An import (`@path` on a line of `CLAUDE.md`) is not followed, for the same reason.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from switchtower.engines.agent.prompts import blocks, reading

INSTRUCTIONS_LIMIT = 32 * 1024
NAMES = ("AGENTS.md", "CLAUDE.md")
MOST_NESTED = 50
MOST_FOLDERS = 500
_MOST_ENTRIES = 2000
_PASSED_OVER = frozenset({"node_modules", "vendor", "venv", "site-packages", "__pycache__", "target", "dist", "build"})


def read_user_instructions(user_folder: Path | None) -> list[str]:
    if user_folder is None:
        return []
    return _render_files(reading.PromptFolder(str(user_folder), own=True), (str(user_folder / NAMES[0]),), origin="user")


def read_workspace_instructions(workspace: str) -> list[str]:
    return _render_files(reading.PromptFolder(workspace), NAMES, origin="workspace")


def list_nested_instructions(workspace: str) -> list[str]:
    """Paths of more such files, the outer ones first. Links are not followed: a path counts once."""
    return [path for path, _ in zip(_find_nested_files(reading.PromptFolder(workspace)), range(MOST_NESTED), strict=False)]


def _render_files(folder: reading.PromptFolder, paths: tuple[str, ...], *, origin: str) -> list[str]:
    """A block for each file, or a line that says why there is none. Two files with the same text are one."""
    shown: list[str] = []
    texts: set[str] = set()
    for path in paths:
        try:
            document = reading.read_document(folder, path, limit=INSTRUCTIONS_LIMIT)
        except reading.PromptFileMissing:
            continue
        except reading.PromptFileError as trouble:
            shown.append(f"[`{blocks.escape_unprintable(path)}` was left out: {blocks.to_one_line(str(trouble), longest=300)}]")
            continue
        text = document.text.strip()
        if not text or text in texts:
            continue
        texts.add(text)
        attributes = {"origin": origin, "path": path}
        if document.cut:
            attributes["cut"] = f"the first {INSTRUCTIONS_LIMIT} of {document.size} bytes; read the file for the rest"
        shown.append(blocks.quote_block("instructions", text, **attributes))
    return shown


def _find_nested_files(folder: reading.PromptFolder) -> Iterator[str]:
    waiting = deque([""])
    for _ in range(MOST_FOLDERS):
        if not waiting:
            return
        above = waiting.popleft()
        try:
            listing = reading.list_folder(folder, above or ".", most=_MOST_ENTRIES)
        except reading.PromptFileError:
            continue
        for name, kind in listing.entries:
            path = f"{above}{name}"
            if above and kind == "file" and name in NAMES:
                yield path
            elif kind == "folder" and not name.startswith(".") and name not in _PASSED_OVER:
                waiting.append(f"{path}/")
