"""The options and subcommands that are known to be harmless, as data: one table per program, in the notation that `arguments`
explains.

Left out on purpose is everything that runs, loads, sends or writes something of the caller's choosing, and everything that
follows links.

A section `[make gmake]` is one table for both names; a line that starts with blanks continues the one above it.
"""

import re
from collections.abc import Iterator

from switchtower.core.policy.tables import build_tools, databases, files, javascript, network, python, version_control

_SECTION = re.compile(r"^\[(.+)\]\n", re.MULTILINE)


def _split_sections(text: str) -> Iterator[tuple[str, str]]:
    _, *pieces = _SECTION.split(text)
    for names, table in zip(pieces[::2], pieces[1::2], strict=True):
        yield from ((name, table) for name in names.split())


PROGRAM_TABLES: dict[str, str] = {
    name: table
    for module in (files, version_control, build_tools, javascript, python, network, databases)
    for name, table in _split_sections(module.TEXT)
}
