"""What stands around a secret and how it goes on, each pattern bounded or a plain run. Nothing here decides; `scanner` does."""

import re
from typing import NamedTuple

MARK = "[redacted]"
"""What stands in the place of a secret."""

CONTEXT = 96
"""How far back a decision may look: the longest name with its quotes, annotation and blanks."""

TOKEN_REST = re.compile(r"(?:[\w-]|\.(?=[\w-]))*", re.ASCII)

MYSQL_BEHIND = re.compile(r"\b(?:mysql|mariadb)(?:admin|dump|import|show|slap|check)?\b[^\n;|&]*[ \t]\Z")
NETRC_BEHIND = re.compile(r"\blogin[ \t\n]+\S{1,64}[ \t\n]+\Z")
"""What stands before a password that only its place gives away; matched against what came out."""

PEM_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)-----")
PEM_BODY = re.compile(r"[ \t]{0,15}(?:\\[rn]|[\r\n])|[^A-Za-z0-9]{0,16}[A-Za-z0-9+/]{32}")
"""What follows a block's first line; without it the line is only spoken of, as in `if "-----BEGIN PRIVATE KEY-----" in text`."""
PEM_BODY_CUT_SHORT = re.compile(r"[^A-Za-z0-9]{0,16}[A-Za-z0-9+/]{0,31}\Z")
PEM_END = re.compile(r"-----END [A-Za-z0-9 ]{0,49}-----|[ \n](?:[a-z]{1,15}[,.]? ){5}[a-z]")
"""A block's last line, or six plain words in a row: that is prose again, and no key."""
PEM_END_LONGEST = 96
PEM_LONGEST = 16_384
"""A block without an end is swallowed so far and no farther: four times an RSA key of 4,096 bits."""

_ANNOTATIONS = "|".join(
    re.escape(annotation[::-1]) for annotation in ("str", "&str", "&'static str", "string", "String", "bytes")
)

# These two read backwards from a sign, so they are written backwards and matched against reversed text.
NAME_BEHIND = re.compile(
    rf"[ \t]{{0,8}}(?:(?:{_ANNOTATIONS})[ \t]{{0,2}}:[ \t]{{0,2}})?\*{{0,2}}\]?(?:[\"'`]\\{{0,3}})?([\w-]{{1,48}})", re.ASCII
)
USER_BEHIND = re.compile(r"[^\s/:@\"'`<>\\]{0,64}//:")

VALUE_AHEAD = re.compile(
    r"(?P<sign>[:=]{0,3}>?)\*{0,2}(?P<blank>[ \t]{0,8})(?:[bfruBFRU]{0,2}(?P<quote>\\{0,3}[\"'`]))?"
    r"(?P<scheme>(?:[Bb]asic|[Bb]earer|[Tt]oken|[Dd]igest|[Nn]egotiate)[ \t]{1,4})?"
)
VALUE_LONGEST = 64
"""A value is judged by its first characters."""

_ESCAPED = r"\\[^nrt\"'`\s\\]"
_BARE = rf"(?:[^\s\"'`,;&|<>()\]{{}}\\]|{_ESCAPED})"
_IN = {"": _BARE, '"': r"(?:[^\"\\\n]|\\[^\n])", "'": r"(?:[^'\\\n]|\\[^\n])", "`": r"(?:[^`\\\n]|\\[^\n])"}
_IN_ESCAPED = rf"(?:[^\"'`\\\n]|{_ESCAPED})"


class CharRun(NamedTuple):
    """The characters that a value goes on with: `start` takes as many as are judged, `rest` all that follow."""

    start: re.Pattern[str]
    rest: re.Pattern[str]


def _make_run(unit: str) -> CharRun:
    return CharRun(re.compile(f"{unit}{{0,{VALUE_LONGEST}}}"), re.compile(f"{unit}*"))


RUNS = {quote: _make_run(unit) for quote, unit in _IN.items()}
ESCAPED_RUN = _make_run(_IN_ESCAPED)
"""By the quote that opened the value; a quote that is itself escaped, as in JSON within JSON, has a run of its own."""

COOKIE_RUN = _make_run(r"[^\"'`\r\n\\]")
SET_COOKIE_RUN = _make_run(r"[^\"'`\r\n\\;]")


def find_run(quote: str) -> CharRun:
    return RUNS.get(quote, ESCAPED_RUN)


PASSWORD_IN_URL = re.compile(r"[^\s/\"'`<>\\]*")
PASSWORD_IN_URL_LONGEST = 256
PORT = re.compile(r"[0-9]{0,5}")
