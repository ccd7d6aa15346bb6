"""The names under which a session's MCP tools are known: `{server}_{tool}`, in letters that every model provider takes.

A name belongs to one tool for as long as the session lives, whichever servers come and go: a rule that was made for it
never falls to another tool. Our own tools' names are taken from the start.
"""

import hashlib
import re
from collections.abc import Iterable

LONGEST = 64
RESERVED_NAMES = frozenset(
    {
        "ask_user",
        "edit_file",
        "git_commit",
        "git_diff",
        "git_status",
        "list_dir",
        "read_file",
        "read_skill",
        "run",
        "search",
        "write_file",
    }
)
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8


class ToolNames:
    def __init__(self, reserved: Iterable[str] = RESERVED_NAMES) -> None:
        self._owners: dict[str, tuple[str, str] | None] = dict.fromkeys(reserved)
        self._given: dict[tuple[str, str], str] = {}

    def assign_name(self, server: str, tool: str) -> str:
        owner = (server, tool)
        if owner not in self._given:
            self._given[owner] = name = self._find_free_name(owner)
            self._owners[name] = owner
        return self._given[owner]

    def _find_free_name(self, owner: tuple[str, str]) -> str:
        plain = _FOREIGN.sub("_", "_".join(owner))
        if len(plain) <= LONGEST and plain not in self._owners:
            return plain
        digest = hashlib.sha256("\0".join(owner).encode(errors="surrogatepass")).hexdigest()
        for start in range(len(digest) - _DIGEST):
            name = f"{plain[: LONGEST - _DIGEST - 1]}_{digest[start : start + _DIGEST]}"
            if name not in self._owners:
                return name
        raise AssertionError("a digest has room for more collisions than anybody can make")
