"""How secrets begin: one pattern that finds every place where a stream has to stop and look. It decides nothing.

The pattern also matches what may become such a place once more text is known, but only at the very end. All of it is
positive: what matches before the end still matches when more text has come.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple


class _Start(NamedTuple):
    """First characters, the least that has to follow them, and what may become that."""

    prefixes: tuple[str, ...]
    needs: str
    so_far: str


_TOKENS = (
    _Start(("sk-",), r"(?:(?=[A-Za-z_-]{0,14}[0-9])[\w-]{8}|[\w-]{16})", r"[\w-]{0,15}"),
    _Start(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"), r"[\w-]{8}", r"[\w-]{0,7}"),
    _Start(("sk_live_", "rk_live_", "sk_test_", "rk_test_"), r"[\w-]{8}", r"[\w-]{0,7}"),
    _Start(("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), r"[\w-]{8}", r"[\w-]{0,7}"),
    _Start(("AIza",), r"[\w-]{16}", r"[\w-]{0,15}"),
    _Start(("AKIA", "ASIA"), r"[A-Z0-9]{12}", r"[A-Z0-9]{0,11}"),
    _Start(("att_",), r"(?=[a-z_-]{0,15}[A-Z0-9])[\w-]{16}", r"[\w-]{0,15}"),
    _Start(("eyJ",), r"[\w-]{8,256}\.eyJ", r"[\w-]{0,256}(?:\.(?:ey?)?)?"),
)
"""The last is a JSON Web Token: two JSON objects in base 64 with a dot between them."""

_ANNOUNCEMENTS = _Start(
    (
        *("Bearer", "bearer", "BEARER", "--password", "--passphrase", "--secret", "--client-secret"),
        *("--token", "--access-token", "--auth-token", "--api-key", "--api-token", "--secret-key"),
    ),
    r"[ \t]",
    "",
)
"""Words after which a blank and the secret come. No token can begin inside of one, so they may be followed forwards."""

_PEM = _Start(("-----BEGIN ",), r"[A-Z0-9 ]{0,49}-----", r"[A-Z0-9 ]{0,49}-{0,4}")

TOKEN = re.compile("|".join(f"(?:{'|'.join(token.prefixes)}){token.needs}" for token in _TOKENS), re.ASCII)

ANNOUNCED = re.compile(f"(?:{'|'.join(_ANNOUNCEMENTS.prefixes)}){_ANNOUNCEMENTS.needs}")

SIGNS = "=:"
"""After these a secret may come, if a name stands before them."""


def pattern(leaves: Mapping[str, str], guard: Callable[[str], str] = lambda consumed: "", consumed: str = "") -> str:
    """Matches each prefix with the pattern that it leads to, and at the end of the text also a part of a prefix.

    `guard` is what must hold of the characters consumed; it is asked at the second, because most words are out by then.
    Branches open with plain characters, on which `re` is quickest: it skips at once to the next that can begin anything.
    """
    checked = guard(consumed) if len(consumed) == 2 else ""
    if consumed in leaves:
        return checked + leaves[consumed]
    following = sorted({prefix[len(consumed)] for prefix in leaves if prefix.startswith(consumed)})
    branches = [re.escape(character) + pattern(leaves, guard, consumed + character) for character in following]
    if not consumed:
        return "|".join(branches)
    branches.append(r"\Z" + guard(consumed) if len(consumed) == 1 else r"\Z")
    return f"{checked}(?:{'|'.join(branches)})"


def _at_start_of_word(consumed: str) -> str:
    """Before it stands no letter or digit; or an escape such as `\\n` or `%3D`, or a terminal colour's `0m`."""
    if not consumed[0].isalpha():
        return ""
    consumed = re.escape(consumed)
    escapes = "|".join(f"(?<={escape}{consumed})" for escape in (r"\\[nrt]", r"%[0-9A-Fa-f]{2}", r"[0-9;\[]m"))
    return rf"(?:(?<![A-Za-z0-9]{consumed})|{escapes})"


_LEAVES = {
    prefix: f"(?:{start.needs}|{start.so_far}\\Z)" for start in (*_TOKENS, _ANNOUNCEMENTS, _PEM) for prefix in start.prefixes
}

# A sign behind a sign belongs to the first; a rule of a thousand `=` has to cost next to nothing.
_FIRST_SIGNS = [f"{sign}(?<![{SIGNS}]{sign})" for sign in SIGNS]

ANY = "|".join([*_FIRST_SIGNS, pattern(_LEAVES, _at_start_of_word)])
