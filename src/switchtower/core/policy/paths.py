r"""Classifies paths as words: where one lies in the workspace, whether it belongs to git or steers the agent, which patterns
match it.

Reads no disk, so links are not visible here; `tools/files/scope.py` decides where a name really leads.

Wildcards over plain text: `*`, `?`, `[a-z]`, `[!a]`, and `\` before a character that means itself. Knows nothing of paths,
words or rules.

Matching takes time in proportion to pattern times text, whatever the pattern: a regular expression could backtrack without
bound.

The files that hold secrets, by name. The list exists only here; it checks names and reads no files.

`tools/files/scope.py` calls `is_secret` again for the path that a name really leads to, because a link can have an innocent
name. In a command, secrets are only searched for: a shell has endless ways to spell a path, so a hit needs an approval, and no
hit proves nothing."""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct


class CharMatcher(Struct, frozen=True):
    """Matches one character: any, one within these ranges, or one outside of them."""

    ranges: tuple[tuple[str, str], ...] | None = None
    negated: bool = False

    def matches(self, char: str) -> bool:
        if self.ranges is None:
            return True
        return any(first <= char <= last for first, last in self.ranges) != self.negated


GlobPart = str | CharMatcher | None
"""A character that means itself, one character of a class, or (None) any number of any characters."""
Glob = tuple[GlobPart, ...]

_MOST_TO_COMPARE = 128


def parse_glob(pattern: str) -> Glob:
    tokens: list[GlobPart] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if not tokens or tokens[-1] is not None:
                tokens.append(None)
        elif char == "?":
            tokens.append(CharMatcher())
        elif char == "[" and (end := _find_class_end(pattern, at)) is not None:
            tokens.append(_parse_class(pattern[at:end]))
            at = end + 1
        elif char == "\\" and at < len(pattern):
            tokens.append(pattern[at])
            at += 1
        else:
            tokens.append(char)
    return tuple(tokens)


parse_rule_glob = lru_cache(maxsize=512)(parse_glob)
"""The cache is for patterns of a configuration, which repeat; text that a model writes is not worth caching."""


def escape_glob(text: str) -> str:
    """Returns a pattern that matches this text and no other."""
    return "".join(f"\\{char}" if char in "*?[\\" else char for char in text)


def is_literal(glob: Glob) -> bool:
    return all(isinstance(token, str) for token in glob)


def can_match(glob: Glob, text: str) -> bool:
    """Returns whether the first character matches."""
    first = glob[0] if glob else ""
    return first == text[:1] or not isinstance(first, str)


def match_glob(glob: Glob, text: str) -> bool:
    """Returns whether the whole text matches. Only the last star is ever widened, which is enough and keeps the time bounded."""
    first = glob[0] if glob else ""
    if isinstance(first, str) and first != text[:1]:
        return False  # most patterns end here
    here = at = 0
    star, star_at = -1, 0
    size, tokens = len(text), len(glob)
    while at < size:
        token = glob[here] if here < tokens else ""
        if token is None:
            star, star_at = here, at
            here += 1
        elif token == text[at] or (isinstance(token, CharMatcher) and token.matches(text[at])):
            here += 1
            at += 1
        elif star >= 0:
            star_at += 1
            here, at = star + 1, star_at
        else:
            return False
    return all(token is None for token in glob[here:])


def can_overlap(left: Glob, right: Glob) -> bool:
    """Returns whether some text matches both patterns. Errs towards yes."""
    if len(left) > _MOST_TO_COMPARE or len(right) > _MOST_TO_COMPARE:
        return True
    # For each prefix of `left`: the prefixes of `right` that have a text in common with it.
    row = [True, *([False] * len(right))]
    for at, other in enumerate(right, start=1):
        row[at] = row[at - 1] and other is None
    for one in left:
        above, row = row, [row[0] and one is None]
        for at, other in enumerate(right, start=1):
            if one is None or other is None:
                row.append(above[at] or row[at - 1])
            else:
                row.append(above[at - 1] and _can_share_character(one, other))
    return row[-1]


def _can_share_character(one: str | CharMatcher, other: str | CharMatcher) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, str) and isinstance(other, CharMatcher):
        return other.matches(one)
    if isinstance(one, CharMatcher) and isinstance(other, str):
        return one.matches(other)
    return True


def _find_class_end(pattern: str, at: int) -> int | None:
    first = at + 1 if pattern[at : at + 1] in ("!", "^") else at
    # A bracket that comes first is one of the characters.
    end = pattern.find("]", first + 1)
    return None if end < 0 else end


def _parse_class(body: str) -> CharMatcher:
    negated = body[:1] in ("!", "^")
    chars = body[1:] if negated else body
    ranges = []
    at = 0
    while at < len(chars):
        if chars[at + 1 : at + 2] == "-" and at + 2 < len(chars):
            ranges.append((chars[at], chars[at + 2]))
            at += 3
        else:
            ranges.append((chars[at], chars[at]))
            at += 1
    return CharMatcher(tuple(ranges), negated)


Parts = tuple[str, ...]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GIT = frozenset({".git", "git~1"})
_STEERING_FILES = _names(
    # Files of agents.
    "agents.md agents.override.md claude.md claude.local.md gemini.md copilot-instructions.md .mcp.json"
    " .cursorrules .windsurfrules .clinerules .roorules .aider.conf.yml .goosehints"
    # Files of git, of its hooks, and of CI systems that run after a push.
    " .gitmodules .gitattributes .gitconfig .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml lefthook.yml"
    " lefthook.yaml .lefthook.yml .lefthook.yaml lefthook-local.yml .huskyrc .lintstagedrc .gitlab-ci.yml .gitlab-ci.yaml"
    " .travis.yml .drone.yml .cirrus.yml .woodpecker.yml .woodpecker.yaml .appveyor.yml appveyor.yml azure-pipelines.yml"
    " azure-pipelines.yaml bitbucket-pipelines.yml jenkinsfile cloudbuild.yaml buildspec.yml .sourcehut.yml .build.yml"
    # Files that shells read when they start or change folder.
    " .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc"
    " .mkshrc .cshrc .tcshrc .login .logout .inputrc config.fish .xinitrc .xprofile .xsession .xsessionrc .envrc .autoenv"
    " .autoenv.zsh .mise.toml mise.toml .tool-versions"
    # Files that programs read in the folder they are started in.
    " .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs bunfig.toml .vimrc .exrc .nvimrc .nvim.lua .gvimrc .emacs .dir-locals.el .gdbinit"
    " .lldbinit .pdbrc .irbrc .pryrc .rprofile .octaverc .sqliterc .psqlrc .mysqlrc .my.cnf .curlrc .wgetrc .screenrc .tmux.conf"
    " .hgrc hgrc sitecustomize.py usercustomize.py devcontainer.json .devcontainer.json"
)
_STEERING_ENDINGS = (".code-workspace", ".pth")
_STEERING_FOLDERS = _names(
    ".tower .agents .agent .claude .cursor .codex .gemini .windsurf .clinerules .roo .kiro .amazonq .continue .aider .opencode"
    " .goose .junie .vscode .vscode-server .idea .fleet .zed .vs .sublime .devcontainer .husky .githooks .lefthook .circleci"
    " .buildkite .woodpecker .gitlab .forgejo .gitea .cargo .mvn .bundle .yarn .vim .nvim .emacs.d .direnv .mise .hg .svn .bzr"
    " .jj"
)
_STEERING_PLACES = ((".github", "workflows"), (".github", "actions"), (".config", "fish"), (".config", "mise"))
_REPOSITORY_FILES = frozenset({"head", "config", "config.worktree", "commondir", "packed-refs"})
_REPOSITORY_FOLDERS = frozenset({"objects", "refs"})


def locate_in_workspace(path: str, workspace: str = "", base: Parts = ()) -> Parts | None:
    """Returns the parts of a path below the workspace, with `.` and `..` resolved; None when it leads out of it.

    A relative path starts at `base`, a folder of the workspace.
    """
    if path.startswith("/"):
        root = workspace.rstrip("/")
        # The root itself may be written with `..`, so both are resolved before they are compared.
        absolute, home = _resolve(path.split("/"), ()), _resolve(root.split("/"), ())
        if not home or absolute is None or absolute[: len(home)] != home:
            return None
        return absolute[len(home) :]
    if path == "~" or path.startswith("~/"):
        return None
    return _resolve(path.split("/"), base)


def make_absolute(path: str, base: Parts = ()) -> Parts:
    """Returns the parts of a path from the root of the file system, with `.` and `..` resolved; a relative one starts at
    `base`.
    """
    stack = [] if path.startswith("/") else list(base)
    for part in path.split("/"):
        if part == "..":
            stack = stack[:-1]
        elif part not in ("", "."):
            stack.append(part)
    return tuple(stack)


def is_below(parts: Parts, folder: Parts) -> bool:
    """The comparison ignores case."""
    return bool(folder) and [normalize_name(part) for part in parts[: len(folder)]] == [normalize_name(part) for part in folder]


def _resolve(parts: list[str], base: Parts) -> Parts | None:
    if len(parts) == 1 and not base and parts[0] not in ("", ".", ".."):
        return (parts[0],)
    stack = list(base)
    for part in parts:
        if part == "..":
            if not stack:
                return None
            stack.pop()
        elif part not in ("", "."):
            stack.append(part)
    return tuple(stack)


def normalize_name(text: str) -> str:
    """Makes names equal that some file system treats as the same: case, compatibility forms, invisible characters."""
    if text.isascii() and text.isprintable():
        return text.lower()
    shown = "".join(char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) not in ("Cf", "Cc"))
    return shown.casefold()


def is_git_path(parts: Parts) -> bool:
    return not _GIT.isdisjoint(_normalize_parts(parts))


def is_steering_file(parts: Parts) -> bool:
    """Returns whether the agent, its daemon or another tool obeys this file: a writer of it can run more than it is allowed
    to.
    """
    return _is_steering(_normalize_parts(parts))


def can_make_repository(parts: Parts) -> bool:
    """Returns whether this file makes its folder a repository, or configures git in one, though nothing there is named `.git`."""
    *folders, name = _normalize_parts(parts) or [""]
    return name in _REPOSITORY_FILES or ("." not in name and not _REPOSITORY_FOLDERS.isdisjoint((*folders, name)))


def is_protected(parts: Parts) -> bool:
    folded = _normalize_parts(parts)
    return not _GIT.isdisjoint(folded) or _is_steering(folded)


def _normalize_parts(parts: Parts) -> list[str]:
    return [normalize_name(part).rstrip(" .") for part in parts]


def _is_steering(folded: list[str]) -> bool:
    if not folded:
        return False
    if folded[-1] in _STEERING_FILES or folded[-1].endswith(_STEERING_ENDINGS) or not _STEERING_FOLDERS.isdisjoint(folded):
        return True
    return len(folded) > 1 and any(pair in _STEERING_PLACES for pair in pairwise(folded))


class PathPattern(Struct, frozen=True):
    """A path with wildcards, part by part; None represents `**`, any number of parts."""

    parts: tuple[Glob | None, ...]
    folded: tuple[Glob | None, ...]
    """The same for comparisons that ignore case."""
    absolute: bool

    @property
    def is_literal(self) -> bool:
        return all(part is not None and is_literal(part) for part in self.parts)


@lru_cache(maxsize=512)
def parse_path_pattern(text: str) -> PathPattern:
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    return PathPattern(
        parts=tuple(None if part == "**" else parse_glob(part) for part in parts),
        folded=tuple(None if part == "**" else parse_glob(normalize_name(part)) for part in parts),
        absolute=text.startswith("/"),
    )


def match_path_exactly(wanted: PathPattern, parts: Parts, workspace: str = "") -> bool:
    """Rules that allow: returns whether the pattern matches exactly this path, with case."""
    return _match_parts(wanted.parts, _place_pattern(wanted, parts, workspace))


def match_path_loosely(wanted: PathPattern, parts: Parts, workspace: str = "", *, wild: bool = False) -> bool:
    """Rules that ask or deny: returns whether the pattern matches this path or a folder above it, in any spelling.

    `wild` means that the path itself has wildcards; it then matches everything that they could expand to.
    """
    if parts and not wild and not wanted.absolute and wanted.folded:
        first = wanted.folded[0]
        if first is not None and not match_glob(first, normalize_name(parts[0])):
            return False  # most end here
    folded = tuple(normalize_name(part) for part in _place_pattern(wanted, parts, workspace))
    return _match_parts((*wanted.folded, None), folded, wild=wild)


def can_match_below(wanted: PathPattern, folder: Parts, workspace: str = "") -> bool:
    """Returns whether the pattern could match something below this folder."""
    reached = {0}
    for part in _place_pattern(wanted, folder, workspace):
        reached = _advance(wanted.folded, reached, normalize_name(part))
    return bool(_expand_reached(wanted.folded, reached))


def _place_pattern(wanted: PathPattern, parts: Parts, workspace: str) -> Parts:
    if not wanted.absolute:
        return parts
    return (*(part for part in workspace.split("/") if part), *parts)


def _match_parts(wanted: tuple[Glob | None, ...], parts: Parts, *, wild: bool = False) -> bool:
    reached = {0}
    for part in parts:
        reached = _advance(wanted, reached, part, wild=wild)
        if not reached:
            return False
    return len(wanted) in _expand_reached(wanted, reached)


def _advance(wanted: tuple[Glob | None, ...], reached: set[int], part: str, *, wild: bool = False) -> set[int]:
    """Returns the positions in the pattern that one more part leads to."""
    after = set()
    for at in _expand_reached(wanted, reached):
        if at == len(wanted):
            continue
        glob = wanted[at]
        if glob is None:
            after.add(at)
        elif can_overlap(glob, parse_glob(part)) if wild else match_glob(glob, part):
            after.add(at + 1)
    return after


def _expand_reached(wanted: tuple[Glob | None, ...], reached: set[int]) -> set[int]:
    """Adds the positions after each `**`, which may also match nothing."""
    places = set(reached)
    for at in reached:
        while at < len(wanted) and wanted[at] is None:
            at += 1
            places.add(at)
    return places


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
    *(parse_glob(name) for name in NAMES if name != "id_*"),
    *(parse_glob(f"id_{kind}{end}") for kind in ("rsa", "dsa", "ecdsa", "ed25519") for end in ("", "_sk")),
    *(parse_glob(name) for name in (*FOLDERS, *(folder for folder, _ in PLACES))),
)


def is_secret(path: str) -> bool:
    """Returns whether tools may not read a file of this name. The check ignores case, as some file systems do."""
    parts = tuple(part for part in normalize_name(path).replace("\\", "/").split("/") if part not in ("", "."))
    if not parts:
        return False
    return bool(_NAME.fullmatch(parts[-1])) or parts[-2:] in PLACES or not FOLDERS.isdisjoint(parts)


def has_secrets(path: str) -> bool:
    """Returns whether a search through this folder would read secrets whatever else it finds."""
    folder = path.rstrip("/")
    return is_secret(folder) or any(is_secret(f"{folder}/{name}") for _, name in PLACES)


def find_secret_file(word: str, bases: tuple[Parts, ...] = ((),), *, wildcards: bool = False) -> str | None:
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
        if is_secret(path) and (not normalize_name(name).startswith("id_") or _KEY_FILE.fullmatch(normalize_name(name))):
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
    parts = normalize_name(path).split("/")
    if not _WILDCARDS.search(path):
        return False
    return any(folder in parts for folder, _ in PLACES) or any(
        _WILDCARDS.search(part) and any(_can_expand(parse_glob(part), target) for target in _WILDCARD_TARGETS) for part in parts
    )


def _can_expand(wildcard: Glob, target: Glob) -> bool:
    # A shell's wildcard does not match a dot at the start of a name.
    if target[:1] == (".",) and wildcard[:1] != (".",):
        return False
    return can_overlap(wildcard, target)
