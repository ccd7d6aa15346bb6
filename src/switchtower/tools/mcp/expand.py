"""`${VAR}` and `${VAR:-default}` in a configuration file, spelled as other MCP clients have it. Knows no file and no server."""

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_LONGEST = 64 * 1024
"""What one text may come to: a short file can name a long variable many times."""


class ExpansionError(ValueError):
    """A variable is not set, or the text grows too long."""


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """The text with its variables filled in. What is no such variable stays as it stands."""
    pieces: list[str] = []
    length = end = 0
    for variable in _VARIABLE.finditer(text):
        pieces += (text[end : variable.start()], _get_value(variable, variables))
        length += len(pieces[-2]) + len(pieces[-1])
        end = variable.end()
        if length > _LONGEST:
            break
    if length + len(text) - end > _LONGEST:
        raise ExpansionError(f"a text of it is longer than {_LONGEST} characters with its variables filled in")
    return "".join([*pieces, text[end:]])


def list_variables(text: str) -> frozenset[str]:
    """The variables that a text refers to."""
    return frozenset(variable[1] for variable in _VARIABLE.finditer(text))


def _get_value(variable: re.Match[str], variables: Mapping[str, str]) -> str:
    name, default = variable.groups()
    if default is not None:
        # As in a shell: `:-` also stands in for what is set but empty.
        return variables.get(name) or default
    try:
        return variables[name]
    except KeyError:
        raise ExpansionError(f"`${{{name}}}` is not set; hint: set it, or write `${{{name}:-default}}`") from None
