"""Names as PostgreSQL's `text` can hold them: it has no NUL, so that is written as an escape, and the escape's sign too."""

import re

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def escape_nul(name: str) -> str:
    return name.replace("\\", "\\\\").replace("\0", "\\0") if "\\" in name or "\0" in name else name


def unescape_nul(name: str) -> str:
    return _ESCAPED.sub(lambda escape: "\0" if escape[1] == "0" else escape[1], name) if "\\" in name else name
