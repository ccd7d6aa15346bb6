"""Characters that are invisible, or that change how others are displayed. Pure.

Every client shows these in the text of an approval, so that no part of a command hides, moves or reads as another. The page
has the same table in `web/src/text/invisible.ts`; a test compares them.
"""

import re
from collections.abc import Callable

RANGES = (
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x061C, 0x061C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer vowels without a shape
    (0x180B, 0x180F),  # Mongolian selectors and separator
    (0x200B, 0x200F),  # zero width, direction
    (0x2028, 0x202F),  # line and paragraph separators, directional embeddings and overrides, narrow space
    (0x205F, 0x206F),  # joiners, invisible operators, directional isolates
    (0x2800, 0x2800),  # an empty Braille pattern
    (0x3164, 0x3164),  # Hangul filler
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),  # half-width Hangul filler
    (0xFFF0, 0xFFFB),  # reserved, interlinear annotation
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D173, 0x1D17A),  # musical notation controls
    (0xE0000, 0xE0FFF),  # tags and more variation selectors
)
"""The characters that Unicode lets a program ignore when it shows text (Default_Ignorable_Code_Point), and an empty Braille
pattern. Controls, separators, spaces other than U+0020, surrogates, private and unassigned characters are invisible too: those
are what Python does not call printable.
"""

_HIDING = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in RANGES) + "]")
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")


def is_invisible(character: str) -> bool:
    return not character.isprintable() or _HIDING.match(character) is not None


def reveal(text: str, spell: Callable[[str], str], *, keep: str = "\n\t") -> str:
    """Replaces each invisible character by what `spell` returns, except for those in `keep`, which the client lays out itself."""
    if text.isascii() and text.isprintable():
        return text
    return _NOT_PLAIN.sub(lambda found: found[0] if found[0] in keep or not is_invisible(found[0]) else spell(found[0]), text)


def format_code_point(character: str) -> str:
    """Returns `⟨U+200B⟩`: the notation of Unicode."""
    return f"⟨U+{ord(character):04X}⟩"


def format_escape(character: str) -> str:
    r"""Returns `\u200b`: the notation of a program's source."""
    return character.encode("unicode_escape").decode()
