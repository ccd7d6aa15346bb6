"""A server's list of tools, reduced to what an agent can use: limited in number and length, and with an object schema.

All of it is the server's own claim and goes to the model as such; the read-only hint counts only when the server is the user's
own.

The tools of a session are named `{server}_{tool}`, in characters that every model provider accepts. A name belongs to one tool
for the whole session, even when servers are added and removed: a rule for it never applies to another tool. The names of our own
tools are reserved.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from switchtower.tools.mcp import message_filter

if TYPE_CHECKING:
    import mcp
    import mcp_types


LONGEST_DESCRIPTION = 2_000
LONGEST_SCHEMA = 32 * 1024
LONGEST_LISTING = 256 * 1024
"""The limit of all descriptions and schemas of one server together: a model reads them with every message."""
LONGEST_NAME = 256
_MOST_PAGES = 50


class ListedTool(Struct, frozen=True):
    name: str
    description: str
    schema: dict[str, Any]
    reads_only: bool
    """True when the server claims so."""


class ToolList(Struct, frozen=True):
    tools: tuple[ListedTool, ...] = ()
    left_out: str = ""
    """A note for people about tools that were left out."""


async def fetch_tools(client: "mcp.Client") -> ToolList:
    """Fetches all pages, as far as they are useful. It takes as long as the server takes: the caller sets the time limit."""
    if client.server_capabilities.tools is None:
        return ToolList()
    found: dict[str, mcp_types.Tool] = {}
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            found.setdefault(tool.name, tool)
        cursor = page.next_cursor
        if cursor is None or len(found) > message_filter.MOST_TOOLS:
            break
    return _limit_tools([*found.values()], more=cursor is not None)


def _limit_tools(tools: "list[mcp_types.Tool]", *, more: bool) -> ToolList:
    kept: list[ListedTool] = []
    unfit: list[str] = []
    length = 0
    for tool in tools[: message_filter.MOST_TOOLS]:
        listed = _make_listed_tool(tool)
        size = len(listed.description) + len(json.dumps(listed.schema))
        if size > LONGEST_SCHEMA or length + size > LONGEST_LISTING or not 0 < len(tool.name) <= LONGEST_NAME:
            unfit.append(ascii(tool.name[:40]))
        else:
            kept.append(listed)
            length += size
    notes = []
    if more or len(tools) > message_filter.MOST_TOOLS:
        notes.append(f"only its first {message_filter.MOST_TOOLS} tools are used")
    if unfit:
        names = ", ".join(unfit[:5]) + (" …" if len(unfit) > 5 else "")
        notes.append(f"{len(unfit)} of its tools are left out, as their names or schemas are too long: {names}")
    return ToolList(tuple(kept), "; ".join(notes))


def _make_listed_tool(tool: "mcp_types.Tool") -> ListedTool:
    description = (tool.description or tool.title or "").strip()
    if len(description) > LONGEST_DESCRIPTION:
        description = f"{description[: LONGEST_DESCRIPTION - 1]}…"
    reads_only = tool.annotations is not None and tool.annotations.read_only_hint is True
    return ListedTool(tool.name, description, tool.input_schema, reads_only)


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
