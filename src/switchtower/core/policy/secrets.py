"""The files that hold secrets, by name. The list exists only here; it checks names and reads no files.

`tools/files/scope.py` calls `is_secret` again for the path that a name really leads to, because a link can have an innocent
name. In a command, secrets are only searched for: a shell has endless ways to spell a path, so a hit needs an approval, and no
hit proves nothing.
"""

import re
from collections.abc import Iterator

from switchtower.core.policy import globs, paths

NAMES = (
    ".env*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".git-credentials",
    "id_*",
)
FOLDERS = frozenset({".ssh"})
PLACES = frozenset({(".aws", "credentials"), (".docker", "config.json")})

_NAME = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in NAMES), re.DOTALL)
_KEY_FILE = re.compile(r"id_(rsa|dsa|ecdsa|ed25519|xmss)(_sk)?(\.pub)?")
_SEPARATORS = re.compile(r"[=:@,]")
_PATHS_IN_CODE = re.compile(r"[\w.~/+-]+")
_MOST_TO_LOOK_AT = 4096
_WILDCARDS = re.compile(r"[*?\[]")
_HIDDEN_BY_WILDCARD = re.compile(r"[*?\[{]")

# The names that a shell wildcard could expand to. `id_*` is narrower here: `*.md` would match `id_x.md` too.
_WILDCARD_TARGETS = (
    *(globs.parse_glob(name) for name in NAMES if name != "id_*"),
    *(globs.parse_glob(f"id_{kind}{end}") for kind in ("rsa", "dsa", "ecdsa", "ed25519") for end in ("", "_sk")),
    *(globs.parse_glob(name) for name in (*FOLDERS, *(folder for folder, _ in PLACES))),
)


def is_secret(path: str) -> bool:
    """Returns whether tools may not read a file of this name. The check ignores case, as some file systems do."""
    parts = tuple(part for part in paths.normalize_name(path).replace("\\", "/").split("/") if part not in ("", "."))
    if not parts:
        return False
    return bool(_NAME.fullmatch(parts[-1])) or parts[-2:] in PLACES or not FOLDERS.isdisjoint(parts)


def has_secrets(path: str) -> bool:
    """Returns whether a search through this folder would read secrets whatever else it finds."""
    folder = path.rstrip("/")
    return is_secret(folder) or any(is_secret(f"{folder}/{name}") for _, name in PLACES)


def find_secret_file(word: str, bases: tuple[paths.Parts, ...] = ((),), *, wildcards: bool = False) -> str | None:
    """Returns the secret file that a word of a command names: the word, a value in it (`--file=.env`, `HEAD:.env`), or a
    wildcard.
    """
    if not _can_name_secret(word):
        return None
    for candidate in _iterate_candidates(word[:_MOST_TO_LOOK_AT]):
        if any(is_secret("/".join((*base, candidate))) for base in bases if candidate):
            return candidate
        if wildcards and _can_expand_to_secret(candidate):
            return candidate
    return None


def find_secret_in_code(code: str) -> str | None:
    """Returns the secret file that a piece of program text names. Names of variables such as `id_user` are not key files."""
    if not _can_name_secret(code):
        return None
    for path in extract_paths(code):
        name = path.rsplit("/", 1)[-1]
        if is_secret(path) and (
            not paths.normalize_name(name).startswith("id_") or _KEY_FILE.fullmatch(paths.normalize_name(name))
        ):
            return path
    return None


def extract_paths(code: str) -> Iterator[str]:
    """Yields the words that look like paths in a text that is not a shell command."""
    return (found[0] for found in _PATHS_IN_CODE.finditer(code))


def _can_name_secret(text: str) -> bool:
    """All secrets have a dot, an underscore or a similar character in their name; most words of a command have neither."""
    return "." in text or "_" in text or not text.isascii() or bool(_HIDDEN_BY_WILDCARD.search(text)) or "credentials" in text


def _iterate_candidates(word: str) -> Iterator[str]:
    yield word
    yield from _SEPARATORS.split(word)
    if word.startswith("-") and not word.startswith("--"):
        yield word[2:]


def _can_expand_to_secret(path: str) -> bool:
    parts = paths.normalize_name(path).split("/")
    if not _WILDCARDS.search(path):
        return False
    return any(folder in parts for folder, _ in PLACES) or any(
        _WILDCARDS.search(part) and any(_can_expand(globs.parse_glob(part), target) for target in _WILDCARD_TARGETS)
        for part in parts
    )


def _can_expand(wildcard: globs.Glob, target: globs.Glob) -> bool:
    # A shell's wildcard does not match a dot at the start of a name.
    if target[:1] == (".",) and wildcard[:1] != (".",):
        return False
    return globs.can_overlap(wildcard, target)
