"""Patterns for the start of a secret: they find every place where a stream has to stop and inspect the text. They decide
nothing.

To stop rarely, a prefix is searched for by its rarest character, its anchor; the rest of it is checked backwards. Text that
may
become a secret once more text is known also matches, but only at the very end. All patterns are positive: what matches before
the end still matches when more text has arrived.
"""

import re
import string
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from switchtower.core.redact import patterns

SIGNS = "=:"
"""A secret may follow these, if a name is before them."""

SHORTEST_BODY = 8


class TokenBody(NamedTuple):
    """The text that has to follow a prefix: `needs` at least, `so_far` when the text ends before, `rest` is its continuation."""

    needs: re.Pattern[str]
    so_far: re.Pattern[str]
    rest: re.Pattern[str]


class SecretForm(NamedTuple):
    """A secret that is recognized by the text before it, in parts; `body` is its alphabet, `least` its least length."""

    parts: tuple[tuple[str, str], ...]
    """Each part in its whole form, and the form that it may have when the text ends in it."""
    body: str
    least: int
    begun: str = ""
    """The pattern from which on it is held back however long the rest takes; by default the whole of its parts."""

    @property
    def first(self) -> str:
        """The plain character that every form starts with."""
        return self.parts[0][0].lstrip("\\")[0]


_RARE = "_-.$~/AKJQXZVWYGCHUOzBMEIT43210p"
_WORD_REST = r"(?:[\w-]|\.(?=[\w-]))*"

_SPECIAL = {
    "sk-": (r"(?:(?=[A-Za-z_-]{0,14}[0-9])[\w-]{8}|[\w-]{16})", r"[\w-]{0,15}"),
    # A JSON Web Token: a JSON object in base 64, a dot, and the signed or encrypted part. The object may start with a blank.
    "eyJ": (r"[\w-]{8,256}\.[\w-]{6}", r"[\w-]{0,256}(?:\.[\w-]{0,5})?"),
    "eyA": (r"[\w-]{8,256}\.[\w-]{6}", r"[\w-]{0,256}(?:\.[\w-]{0,5})?"),
    # A private key in base 64; certificates and public keys start alike and are public.
    "LS0tLS1CRUdJTi": (r"(?!BDRVJU|BQVUJM)[\w+/=-]{20}", r"[\w+/=-]{0,19}"),
}

ANNOUNCEMENTS = (
    *("Bearer", "bearer", "BEARER", "--password", "--passphrase", "--secret", "--client-secret"),
    *("--token", "--access-token", "--auth-token", "--api-key", "--api-token", "--secret-key"),
)
"""Words that are followed by a blank and the secret."""


_TOKENS = {prefix: token for token in patterns.TOKENS for prefix in token.prefixes}
PREFIXES = tuple(dict.fromkeys((*_TOKENS, *_SPECIAL)))


@cache
def find_body(prefix: str) -> TokenBody:
    """The patterns are compiled when the prefix first occurs: there are many, and the daemon has to start quickly."""
    token = _TOKENS.get(prefix)
    if token is None:
        rest = r"(?:[\w+/=-]|\.(?=[\w-]))*" if prefix.startswith("LS") else _WORD_REST
    else:
        # Characters beyond the letters of words belong to the secret too where the provider uses them.
        rest = f"(?:[\\w-]|{token.body}|\\.(?=[\\w-]))*"
        mixed = f"(?=[a-z_.%=+/-]{{0,{token.least - 1}}}[A-Z0-9])" if token.mixed else ""
        needs, so_far = f"{mixed}{token.body}{{{token.least}}}", f"{token.body}{{0,{token.least - 1}}}"
    if prefix in _SPECIAL:
        needs, so_far = _SPECIAL[prefix]
    return TokenBody(re.compile(needs, re.ASCII), re.compile(rf"{so_far}\Z", re.ASCII), re.compile(rest, re.ASCII))


def _escape_literal(text: str) -> tuple[str, str]:
    so_far = ""
    for character in reversed(text[:-1]):
        so_far = f"(?:{re.escape(character)}{so_far})?"
    return re.escape(text), so_far


_HEX32 = r"[0-9a-f]{32}"
FORMS = {
    # the output of `crypt` for a password
    "crypt": SecretForm(
        (
            (r"\$", ""),
            (r"(?:2[abxy]?|[1567y]|gy|apr1|md5|argon2(?:id|i|d)|scrypt|pbkdf2(?:-\w{1,8})?)", r"[\w-]{0,16}"),
            (r"\$", ""),
        ),
        r"[\w./$=,+-]",
        20,
    ),
    "discord": SecretForm(((r"\.(?:(?<=[MNO][\w-]{23}\.)|(?<=[MNO][\w-]{24}\.)|(?<=[MNO][\w-]{25}\.))", ""),), r"[\w.-]", 34),
    "telegram": SecretForm(((r":(?<=[0-9]{8}:)", ""), (r"(?=AA)", "A?")), r"[\w-]", 33),
    "azure": SecretForm(((r"~(?<=[0-9]Q~)", ""),), r"[\w~.-]", 31),
    "airtable": SecretForm(((r"\.(?<=pat[A-Za-z0-9]{14}\.)", ""),), r"[0-9a-f]", 32),
    "octopus": SecretForm(((r"-(?<=\bAPI-)", ""),), r"[A-Z0-9]", 24),
    "harness": SecretForm(((r"\.(?<=\b[ps]at\.[\w-]{22}\.)", ""),), r"[A-Za-z0-9.]", 30),
    "authress": SecretForm(((r"_(?<=\.acc_)", ""), (r"[a-z0-9-]{10,32}\.", r"[a-z0-9-]{0,32}")), r"[\w+/=-]", 30),
    "authress with a dash": SecretForm(((r"-(?<=\.acc-)", ""), (r"[a-z0-9-]{10,32}\.", r"[a-z0-9-]{0,32}")), r"[\w+/=-]", 30),
    "sentry": SecretForm(
        ((r"/(?<=://)", ""), (rf"(?={_HEX32}@|{_HEX32}:{_HEX32}@)", r"[0-9a-f]{0,32}(?::[0-9a-f]{0,32})?")),
        r"[0-9a-f:]",
        32,
        begun="/[0-9a-f]{4}",
    ),
    "slack": SecretForm(((r"/(?<=hooks\.slack\.com/)", ""), (r"(?:services|triggers|workflows)/", r"[a-z]{0,9}")), r"[\w/]", 20),
    "discord webhook": SecretForm(((r"/(?<=/webhooks/)", ""), (r"[0-9]{15,20}/", r"[0-9]{0,20}")), r"[\w-]", 40),
    "teams": SecretForm(((r"/(?<=webhook\.office\.com/)", ""), _escape_literal("webhookb2/")), r"[\w@/-]", 30),
    "softlayer": SecretForm(
        ((r"/(?<=api\.softlayer\.com/soap/)", ""), (r"v3(?:\.1)?/", r"(?:v(?:3(?:\.1?)?)?)?")), r"[a-z0-9]", 40
    ),
    "putty": SecretForm(
        ((r"-(?<=Private-)", ""), _escape_literal("Lines: "), (r"[0-9]{1,3}\r?\n", r"[0-9]{0,3}\r?")), r"[A-Za-z0-9+/=\r\n]", 20
    ),
    "putty MAC": SecretForm(((r"-(?<=Private-)", ""), _escape_literal("MAC: ")), r"[0-9a-f]", 32),
    "pgpass": SecretForm(
        (
            (r":(?:(?<=:[0-9]{4}:)|(?<=:[0-9]{5}:))", ""),
            (r"(?=[\w.-]{0,62}[g-zG-Z_*]|\*)[\w*.-]{1,63}:", r"[\w*.-]{0,63}"),
            (r"(?=[\w.-]{0,62}[g-zG-Z_])[\w.-]{1,63}:", r"[\w.-]{0,63}"),
        ),
        r"[^\s\"'`,;]",
        4,
    ),
    "mysql": SecretForm(((r"-(?<=[ \t]-)", ""), ("p", "")), r"[^\s\"'`;&|<>()$\\]", 4),
    "netrc": SecretForm(((r"w(?<=passw)", ""), _escape_literal("ord"), (r"[ \t]", "")), r"[^\s\"'`]", 4),
}
"""They are decided like tokens; `scanner` checks the text before `mysql` and `netrc`."""


def _build_progressive(form: SecretForm, *, is_open: bool) -> str:
    """Joins all parts; when `is_open`, each may also end with the text."""
    pattern = f"(?={form.body}{{{form.least}}}" + (f"|{form.body}{{0,{form.least - 1}}}\\Z)" if is_open else ")")
    for index in reversed(range(len(form.parts))):
        whole, partly = form.parts[index]
        pattern = f"{whole}{pattern}"
        if is_open and index:
            pattern = f"(?:{pattern}|{partly}\\Z)"
    return pattern


class FormPatterns(NamedTuple):
    """The patterns of a form: whole, cut off by the end of the text, the introduction of the secret, and its continuation."""

    name: str
    whole: re.Pattern[str]
    partly: re.Pattern[str]
    introduction: re.Pattern[str]
    rest: re.Pattern[str]


@cache
def build_form_patterns(first: str) -> tuple[FormPatterns, ...]:
    """Returns the forms that start with this character."""
    return tuple(
        FormPatterns(
            name,
            re.compile(_build_progressive(form, is_open=False), re.ASCII),
            re.compile(_build_progressive(form, is_open=True), re.ASCII),
            re.compile(form.begun or "".join(whole for whole, _ in form.parts), re.ASCII),
            re.compile(f"{form.body}*", re.ASCII),
        )
        for name, form in FORMS.items()
        if form.first == first
    )


def _find_anchor(prefix: str) -> int:
    ranked = [(_RARE.find(character), index) for index, character in enumerate(prefix) if character in _RARE]
    return max(index for rank, index in ranked if rank == min(ranked)[0]) if ranked else len(prefix) - 1


def _group_by_anchor() -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for prefix in PREFIXES:
        at = _find_anchor(prefix)
        found.setdefault(prefix[at], []).append((prefix, at))
    return found


_ANCHORS = _group_by_anchor()
"""The prefixes that have this character as their anchor, and its position in them."""

_BY_PAIR: dict[str, list[tuple[str, int]]] = {}
"""The same by two characters, the anchor and the one before it; by the anchor alone where it is the first."""
for _anchored_here in _ANCHORS.values():
    for _prefix, _at in _anchored_here:
        _BY_PAIR.setdefault(_prefix[max(0, _at - 1) : _at + 1], []).append((_prefix, _at))


def find_prefixes(text: str, anchor: int) -> Iterable[tuple[str, int]]:
    """Returns the few prefixes that may have their anchor here, and its position in them."""
    return (*_BY_PAIR.get(text[max(0, anchor - 1) : anchor + 1], ()), *_BY_PAIR.get(text[anchor], ()))


_MANY = 8
"""From this many prefixes on, one lookbehind for all of them comes first."""

_HINT = rf"(?:[\w+/=.%-]{{{SHORTEST_BODY}}}|[\w+/=.%-]{{0,{SHORTEST_BODY - 1}}}\Z)"


def _build_anchored(anchor: str, prefixes: Iterable[tuple[str, int]]) -> str:
    """From the anchor on: the rest of a prefix, a lookahead at what follows, then a lookbehind at the whole prefix."""
    by_tail: dict[str, dict[int, list[str]]] = {}
    for prefix, at in prefixes:
        by_tail.setdefault(prefix[at + 1 :], {}).setdefault(len(prefix), []).append(prefix)
    branches = []
    for tail, by_length in by_tail.items():
        # One lookbehind for all of one length: the fewer there are, the quicker an ordinary word is passed.
        looks = [f"(?<={'|'.join(map(re.escape, same))})" for same in by_length.values()]
        glance = _build_lookbehind(len(anchor + tail), [prefix for same in by_length.values() for prefix in same])
        branches.append(f"{re.escape(tail)}{glance}(?={_HINT})(?:{'|'.join(looks)})")
    return "|".join(branches)


def _build_lookbehind(length: int, prefixes: list[str]) -> str:
    """One lookbehind for many prefixes of any length, at the two characters before their common last `length` characters.
    Ordinary words fail here and cost no more; empty where the prefixes are few, or too short for two characters.
    """
    pairs: dict[str, set[str]] = {}
    for prefix in prefixes:
        pair = prefix[:-length][-2:].rjust(2)
        pairs.setdefault(pair[0], set()).add(re.escape(pair[1]))
    if len(prefixes) < _MANY or " " in pairs:
        return ""
    branches = (f"{re.escape(first)}[{''.join(sorted(seconds))}]" for first, seconds in pairs.items())
    return f"(?<=(?:{'|'.join(branches)}){re.escape(prefixes[0][-length:])})"


def _group_by_first() -> dict[str, list[str]]:
    by_first: dict[str, list[str]] = {}
    for anchor, prefixes in _ANCHORS.items():
        by_first.setdefault(anchor, []).append(_build_anchored(anchor, prefixes))
    forms: dict[str, list[str]] = {}
    for form in FORMS.values():
        whole, partly = form.parts[0]
        parts = ((whole.lstrip("\\")[1:], partly), *form.parts[1:])
        forms.setdefault(form.first, []).append(_build_progressive(form._replace(parts=parts), is_open=True))
    for first, branches in forms.items():
        # No form has a blank behind its first character; most full stops and colons do.
        by_first.setdefault(first, []).extend([f"(?! )(?:{'|'.join(branches)})"] if len(branches) > 1 else branches)
    for announcement in ANNOUNCEMENTS:
        by_first.setdefault(announcement[0], []).append(f"{re.escape(announcement[1:])}[ \\t]")
    by_first.setdefault("-", []).append("----(?=BEGIN [A-Z0-9 A-Za-z]{0,49}-----)|----(?=BEGIN [A-Z0-9 A-Za-z]{0,49}-{0,4}\\Z)")
    return by_first


_BY_FIRST = _group_by_first()
"""The patterns by the character that the search stops at."""


def _join_patterns(by_first: dict[str, list[str]]) -> str:
    """Builds one pattern, with each first character once: at any of them, `re` compares all of them."""
    return "|".join(f"{re.escape(first)}(?:{'|'.join(branches)})" for first, branches in by_first.items())


ANY = _join_patterns(_BY_FIRST)


def build_sign_pattern(leaves: Iterable[str]) -> str:
    """Builds a pattern that matches `leaves` and every sign besides `ANY`; at the same place, a match of `ANY` comes first. A
    match with a named group is a sign, one with another group a leaf, and one without is a match of `ANY`.
    """
    by_first = {first: list(branches) for first, branches in _BY_FIRST.items()}
    for leaf in sorted(set(leaves)):
        by_first.setdefault(leaf[0], []).append(_build_leaf(leaf))
    for sign, group in zip(SIGNS, ("equals", "colon"), strict=True):
        by_first.setdefault(sign, []).append(f"(?P<{group}>)")
    return _join_patterns(by_first)


_OPENINGS = (*PREFIXES, *ANNOUNCEMENTS, "-----BEGIN ")

_AFTER_ESCAPE = re.compile(r"(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9;\[][mHGJK])")
r"""A token has no letter or digit before it; or an escape such as `\n` or `%3D`, or a terminal's sequence such as `0m`."""

_BEGINNINGS = frozenset(
    opening[:length] for opening in _OPENINGS for length in range(1, len(opening) + 1) if opening[length - 1] != " "
)
TAIL = 4
LAST = slice(-TAIL, None)
"""The tail of a text. A slice that is made once takes half the time of `text[-TAIL:]`."""
_BY_TAIL: dict[str, tuple[str, ...]] = {}
"""The beginnings that are not shorter than a tail, by their tails, the longest first."""
for _beginning in sorted(_BEGINNINGS, key=len, reverse=True):
    if len(_beginning) >= TAIL:
        _BY_TAIL[_beginning[-TAIL:]] = (*_BY_TAIL.get(_beginning[-TAIL:], ()), _beginning)
_CUT_ESCAPE = re.compile(r"[nrtmHGJK]|[0-9A-Fa-f]{1,2}")
_LETTERS_AND_DIGITS = frozenset(string.ascii_letters + string.digits)
_ESCAPE_ENDS = frozenset("nrtmHGJK" + string.hexdigits)
_UNKNOWN = 1 << 28
_LONG = 1 << 29


OPEN_TAILS: dict[str, int] = {}
"""By the last `TAIL` characters of a text: how many of them may be the start of a prefix or an announcement. The number is
larger than any text when these characters are too few to know; `find_open_start` adds what is missing. Few tails are frequent,
and a dictionary is faster than any search.
"""
_MOST_TAILS = 32 * 1024


def _add_tail(tail: str) -> int:
    if len(OPEN_TAILS) >= _MOST_TAILS:
        OPEN_TAILS.clear()
    count = _count_open(tail)
    if tail in _BY_TAIL:
        count = _UNKNOWN if count else _LONG
    OPEN_TAILS[tail] = count
    return count


def _count_open(tail: str) -> int:
    if len(tail) < TAIL:
        return _UNKNOWN
    for at in range(1, TAIL):
        if tail[at:] in _BEGINNINGS:
            if is_boundary(tail, at):
                return TAIL - at
            if tail[at - 1] in _ESCAPE_ENDS and _CUT_ESCAPE.fullmatch(tail, 0, at):
                return _UNKNOWN
    return 0


def find_open_start(text: str, start: int) -> int:
    """Returns the position from which the end of the text may be the start of a prefix or an announcement; its length when it
    is none.
    """
    end = len(text)
    tail = text[LAST]
    known = OPEN_TAILS.get(tail)
    if known is None:
        known = _add_tail(tail)
    if end - known >= start:
        return end - known
    if known == _LONG and not text.endswith(_BY_TAIL[tail]):
        return end
    for beginning in _BY_TAIL.get(tail, ()):
        at = end - len(beginning)
        if at >= start and text.endswith(beginning) and is_boundary(text, at):
            return at
    for at in range(max(start, end - TAIL + 1), end):
        if text[at:] in _BEGINNINGS and is_boundary(text, at):
            return at
    return end


def is_boundary(text: str, at: int) -> bool:
    """Returns whether a token may start here."""
    before = text[at - 1 : at]
    if before not in _LETTERS_AND_DIGITS or text[at] == "-":
        return True
    return before in _ESCAPE_ENDS and _AFTER_ESCAPE.match(text, at) is not None


URL = "//"
HINTS = ("key", "token", "secret", "pass", "pwd", "credential", "auth", "bearer", "cookie", "sig=", URL)
"""Lower-case hints. A sign without one of these in the `CONTEXT` before it has no name that promises a secret."""

_HINTED = re.compile("|".join(HINTS))


def find_hints(text: str, start: int = 0) -> Iterator[re.Match[str]]:
    """Yields the hints. The search is in lower case, and only in ASCII does that keep the length of the text."""
    plain = text if text.isascii() else text.encode("ascii", "replace").decode()
    return _HINTED.finditer(plain.lower(), start)


SIGN = re.compile("|".join(f"{sign}(?<![{SIGNS}]{sign})" for sign in SIGNS))
COLON = re.compile(f":(?<![{SIGNS}]:)")
"""A sign behind a sign belongs to the first; a line of a thousand `=` has to cost next to nothing."""


def build_start_pattern(leaves: Iterable[str]) -> str:
    """Builds a pattern that matches each of these, and at the end of the text also a part of one. It is for the daemon's own
    values.
    """
    return "|".join(f"{re.escape(leaf[0])}{_build_leaf(leaf)}" for leaf in sorted(set(leaves)))


def _build_leaf(leaf: str) -> str:
    """Returns the pattern behind its first character. The empty group marks the match as a leaf; before it, the search would
    be slow.
    """
    following = ""
    for character in reversed(leaf[1:]):
        following = f"(?:{re.escape(character)}{following}|\\Z)"
    return f"{following}()"
