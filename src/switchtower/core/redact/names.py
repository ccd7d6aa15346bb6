"""Judges `name = value`: does the name promise a secret, and could the value be one? It sees no more than these two.

Where it errs, it errs towards hiding. It leaves these visible, so that code stays readable:

- plain words and identifiers without a digit (`password: string`, `token = request.token`), unless a password is in quotes or
  directly behind `=` (`password=swordfish`);
- references, calls, paths and URLs (`$TOKEN`, `load_key(`, `~/.ssh/id_rsa`, `https://…`);
- short values, numbers behind a key or token (`max_token=4096`), and names that only describe a secret (`token_count`,
  `public_key`, `password_hash`).
"""

import re
from enum import Enum, auto
from functools import lru_cache

from msgspec import Struct


class SecretKind(Enum):
    """The kind of secret that a name promises, from certain to possible."""

    PASSWORD = auto()
    TOKEN = auto()
    KEY = auto()
    """A bare `key`, which may as well be a key of a dictionary."""
    AUTH = auto()
    """A bare `auth`, as in Docker's and npm's settings: base 64 of a name and a password."""
    SIGNATURE = auto()
    """`sig`, as in signed URLs."""
    COOKIE = auto()
    SET_COOKIE = auto()


class AssignedValue(Struct, frozen=True):
    """A value as it occurs in the text: possibly only its start, which has to be enough."""

    text: str
    quoted: bool = False
    assigned: bool = False
    """It is directly behind `=`, as in a shell, a query string or a keyword argument."""
    after_scheme: bool = False
    """It is behind `Bearer` or `Basic`, where mixed case does not mean an identifier."""
    followed_by: str = ""


_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_HINT = re.compile(r"key|token|secret|pass|pwd|credential|authorization|bearer|auth\Z|cookie\Z|\Asig\Z")
_WHOLE = {
    ("auth",): SecretKind.AUTH,
    ("sig",): SecretKind.SIGNATURE,
    ("cookie",): SecretKind.COOKIE,
    ("set", "cookie"): SecretKind.SET_COOKIE,
}
"""Names that promise a secret only when they are nothing else."""

_PASSWORDS = ("password", "passwd", "passphrase", "pwd", "secret", "passwords", "secrets")
_TOKENS = ("token", "apikey", "accesskey", "authkey", "credential", "credentials", "authorization", "bearer")

_ABOUT_A_SECRET = re.compile(
    "alg|algorithm|arn|at|budget|class|count|counts|dir|embedding|enabled|endpoint|env|error|expiration|expires|expiry|"
    "field|fields|file|fingerprint|folder|format|func|handler|hash|hint|id|ids|in|index|input|kind|label|len|length|limit|"
    "limits|manager|md|mode|name|names|path|pattern|placeholder|policy|pos|position|prefix|provider|rate|ref|regex|"
    "required|rotation|service|sha|size|status|store|strength|suffix|ttl|type|types|uri|url|usage|valid|version"
)
_HARMLESS_KEYS = re.compile(
    "arrow|cache|config|dict|foreign|group|hash|hot|idempotency|index|lookup|map|object|partition|press|primary|public|"
    "query|registry|row|shortcut|sort|state|storage|translation|unique"
)

_REFERENCE = re.compile(r"\$[{(\[.]|\$[A-Z_][A-Z0-9_]*(?:/|\Z)|\$[A-Za-z_]+\Z|[\[{<]|%[(sd]|\*+\Z|\.{3}")
_ELSEWHERE = re.compile(
    r"-----BEGIN|arn:|//|[a-z][a-z0-9+.]{0,15}://"  # what another rule covers, or is public
    r"|(?:~|\.\.?)/|/[A-Za-z.][a-z0-9._-]{1,15}/|/[a-z._-]{1,20}\Z|[A-Za-z]:\\|[\w./-]+\.(?:crt|env|json|key|pem|pub|txt|ya?ml)\Z"
)
_SENTENCE = re.compile(r"[A-Z][a-z]* ")
_NOT_IN_TOKENS = re.compile(r"[\s()\[\]{}<>]")
_NUMBER = re.compile(r"[0-9.,_]+")
_CALL_OR_INDEX = re.compile(r"[A-Za-z_][\w.]*(?:\(|\[[\w.:\[-]*)", re.ASCII)
_WORDS = re.compile(r"[A-Za-z_.:?!-]+")
_WORD_BREAK = re.compile(r"[_.:?!-]|(?<=[a-z])(?=[A-Z])")
_LONGEST_WORD = 15
_DIGIT = re.compile(r"[0-9]")
_MIXED_CASE = re.compile(r"[a-z][A-Z]")
_IDENTITY = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-f]{7,64}|(?:[a-z]+_)?[0-9A-HJKMNP-TV-Z]{26}")
_CODE_WORDS = re.compile(
    "boolean|default|getpass|hidden|ignore|inherit|invalid|missing|number|object|optional|plaintext|prompt|random|request|"
    "required|response|result|settings|string|undefined|unknown"
)
_SHORTEST = {SecretKind.PASSWORD: 4, SecretKind.TOKEN: 6, SecretKind.KEY: 8}
_SHAPES = {
    SecretKind.AUTH: re.compile(r"(?=[A-Za-z+/]{0,60}[0-9])[A-Za-z0-9+/]{12,}={0,2}"),
    SecretKind.SIGNATURE: re.compile(r"(?=[A-Za-z%+/_-]{0,60}[0-9])[\w%+/-]{20,}={0,2}", re.ASCII),
    SecretKind.COOKIE: re.compile(r"[\w!#$%&'*+.^|~-]{1,64}=[^\s;]{6}.*", re.DOTALL),
    SecretKind.SET_COOKIE: re.compile(r"[\w!#$%&'*+.^|~-]{1,64}=[^\s;]{6}.*", re.DOTALL),
}
_LONGEST_PLAIN_NUMBER = 11
_RANDOM = re.compile(r"(?=.{0,255}[0-9])(?=.{0,255}[A-Za-z])[\w+/=.:@%~!#-]{8,256}", re.ASCII)
_FEWEST_DIFFERENT = 5


@lru_cache(1_024)
def classify_name(name: str) -> SecretKind | None:
    """Returns what a name such as `API_KEY`, `clientSecret` or `db-password` promises; None when it names no secret."""
    if not _HINT.search(name.lower()):
        return None  # nearly all names, at a fraction of the cost
    parts = [part.lower() for part in _PARTS.findall(name)]
    while parts and parts[-1].isdigit():
        parts.pop()
    if (whole := _WHOLE.get(tuple(parts))) is not None:
        return whole
    if not parts or _ABOUT_A_SECRET.fullmatch(parts[-1]):
        return None
    for index in reversed(range(len(parts))):
        part = parts[index]
        if part.endswith(_PASSWORDS) or (part == "pass" and index):
            return SecretKind.PASSWORD
        if part.endswith(_TOKENS):
            return SecretKind.TOKEN
        if part == "key":
            if not index:
                return SecretKind.KEY
            return None if _HARMLESS_KEYS.fullmatch(parts[index - 1]) else SecretKind.TOKEN
    return None


def is_secret(kind: SecretKind, value: AssignedValue) -> bool:
    """Returns whether the value behind such a name has to be hidden."""
    text = value.text
    if not text or is_reference(text) or _ELSEWHERE.match(text):
        return False
    if (shape := _SHAPES.get(kind)) is not None:
        return shape.fullmatch(text) is not None
    if kind is SecretKind.PASSWORD and value.quoted:
        return not _SENTENCE.match(text)
    if len(text) < _SHORTEST[kind] or (kind is not SecretKind.PASSWORD and _NOT_IN_TOKENS.search(text)):
        return False
    if _NUMBER.fullmatch(text):
        return kind is SecretKind.PASSWORD or len(text) > _LONGEST_PLAIN_NUMBER
    if _CALL_OR_INDEX.fullmatch(text + "(" if value.followed_by == "(" else text):
        return False
    if _is_plain(text) and not (value.after_scheme and _MIXED_CASE.search(text)):
        return kind is SecretKind.PASSWORD and _is_bare_word(value)
    if kind is SecretKind.KEY:
        return (text.isalpha() or _DIGIT.search(text) is not None) and not _IDENTITY.fullmatch(text)
    return True


def is_worth_keeping(text: str) -> bool:
    """Returns whether a value that was hidden once is certain enough to be hidden wherever it occurs again: not a word, a
    number, an identity, or anything that may be part of ordinary text.
    """
    return (
        _RANDOM.fullmatch(text) is not None
        and len(set(text)) > _FEWEST_DIFFERENT
        and not _NUMBER.fullmatch(text)
        and not _IDENTITY.fullmatch(text)
        and not _is_plain(text)
        and not _ELSEWHERE.match(text)
    )


def is_reference(text: str) -> bool:
    """Returns whether the text only names the source of the value, as `${TOKEN}`, `{token}` and `<token>` do."""
    return _REFERENCE.match(text) is not None


def _is_plain(text: str) -> bool:
    """Returns whether the text is words, or an identifier made of words: nothing that a generator of secrets would print."""
    return _WORDS.fullmatch(text) is not None and all(len(word) <= _LONGEST_WORD for word in _WORD_BREAK.split(text))


def _is_bare_word(value: AssignedValue) -> bool:
    """Returns whether it is `password=swordfish`, or words chained like a passphrase; but not `password=password`."""
    text = value.text
    if classify_name(text) is not None or _CODE_WORDS.fullmatch(text.lower()):
        return False
    return text.count("-") > 1 or (value.assigned and text.isalpha() and len(text) > 5)
