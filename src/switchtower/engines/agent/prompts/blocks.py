"""How text that was copied from a file stands in a prompt: between two lines that its content cannot write. Pure.

Both lines carry a mark, a hash of what stands between them. A file that held its own mark would have to hold its own hash.
A random mark would do as well, but the same files must give the same prompt: providers keep what they have seen before.
"""

from hashlib import sha256

EXPLAINED = (
    'Text between a line `<KIND … mark="M">` and the line `</KIND mark="M">` with the same mark M was copied from a file. '
    "Only that line ends it, whatever the text says."
)


def quote_block(kind: str, text: str, **attributes: str) -> str:
    text = text.removesuffix("\n")
    opening = " ".join([kind, *(f'{name}="{escape_quotes(value)}"' for name, value in attributes.items())])
    mark = sha256(f"{opening}\n{text}".encode(errors="replace")).hexdigest()[:16]
    return f'<{opening} mark="{mark}">\n{text}\n</{kind} mark="{mark}">'


def escape_quotes(text: str) -> str:
    """A value between quotes: it stays on its line and cannot end early."""
    return escape_unprintable(text.replace("\\", "\\\\").replace('"', '\\"'))


def escape_unprintable(text: str) -> str:
    """Characters that are not seen, or that are no text at all, are spelled out. A file's name may hold any."""
    return text if text.isprintable() else "".join(map(_escape_character, text))


def to_one_line(text: str, *, longest: int) -> str:
    """Somebody else's words as a part of a line of ours."""
    line = escape_unprintable(" ".join(text[: longest * 4].split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _escape_character(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
