"""Classifies paths as words: where one lies in the workspace, whether it belongs to git or steers the agent, which patterns
match it.

Reads no disk, so links are not visible here; `tools/files/scope.py` decides where a name really leads.
"""

import unicodedata
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct

from switchtower.core.policy import globs

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

    parts: tuple[globs.Glob | None, ...]
    folded: tuple[globs.Glob | None, ...]
    """The same for comparisons that ignore case."""
    absolute: bool

    @property
    def is_literal(self) -> bool:
        return all(part is not None and globs.is_literal(part) for part in self.parts)


@lru_cache(maxsize=512)
def parse_path_pattern(text: str) -> PathPattern:
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    return PathPattern(
        parts=tuple(None if part == "**" else globs.parse_glob(part) for part in parts),
        folded=tuple(None if part == "**" else globs.parse_glob(normalize_name(part)) for part in parts),
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
        if first is not None and not globs.match_glob(first, normalize_name(parts[0])):
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


def _match_parts(wanted: tuple[globs.Glob | None, ...], parts: Parts, *, wild: bool = False) -> bool:
    reached = {0}
    for part in parts:
        reached = _advance(wanted, reached, part, wild=wild)
        if not reached:
            return False
    return len(wanted) in _expand_reached(wanted, reached)


def _advance(wanted: tuple[globs.Glob | None, ...], reached: set[int], part: str, *, wild: bool = False) -> set[int]:
    """Returns the positions in the pattern that one more part leads to."""
    after = set()
    for at in _expand_reached(wanted, reached):
        if at == len(wanted):
            continue
        glob = wanted[at]
        if glob is None:
            after.add(at)
        elif globs.can_overlap(glob, globs.parse_glob(part)) if wild else globs.match_glob(glob, part):
            after.add(at + 1)
    return after


def _expand_reached(wanted: tuple[globs.Glob | None, ...], reached: set[int]) -> set[int]:
    """Adds the positions after each `**`, which may also match nothing."""
    places = set(reached)
    for at in reached:
        while at < len(wanted) and wanted[at] is None:
            at += 1
            places.add(at)
    return places
