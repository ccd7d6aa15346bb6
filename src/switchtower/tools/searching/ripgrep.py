"""How ripgrep is called: without the user's configuration, without following links, and so that neither a pattern nor a path
can be taken for an option. Runs nothing itself.
"""

from switchtower.core.policy import secrets
from switchtower.tools.running import installed
from switchtower.tools.searching import finding


def find_ripgrep() -> str | None:
    return installed.find_program("rg")


def build_arguments(rg: str, query: finding.LineQuery, *, root: str) -> list[str]:
    """It is to run in the workspace. Its lines have the form that `finding.parse` reads."""
    return [
        rg,
        "--no-config",
        "--no-follow",
        "--no-messages",
        "--no-ignore-messages",
        "--color=never",
        "--no-heading",
        "--with-filename",
        "--null",
        "--line-number",
        "--column",
        "--byte-offset",
        "--sort=path",
        "--hidden",
        "--crlf",
        "--encoding=none",
        f"--max-count={query.most_results + 1}",
        f"--max-columns={finding.COMPARED_BYTES}",
        "--max-columns-preview",
        *_build_ignore_options(query, root),
        "--case-sensitive" if query.case_sensitive else "--ignore-case",
        *([f"--glob={query.glob}"] if query.glob else []),
        "--glob=!.git",
        *(f"--iglob=!{pattern}" for pattern in _build_secret_globs()),
        f"--regexp={query.pattern}",
        "--",
        f"./{query.start}",
    ]


def _build_ignore_options(query: finding.LineQuery, root: str) -> list[str]:
    """Git's rules, whether or not this is a repository. Those above the workspace count as far as the repository reaches:
    without one, a rule in the user's home could hide everything."""
    flags = ["--no-require-git", "--no-ignore-dot", "--no-ignore-global"]
    if finding.has_repository(root):
        return flags
    own = [] if query.start == "." else ["--ignore-file=.gitignore"]
    return [*flags, "--no-ignore-parent", *own]


def _build_secret_globs() -> list[str]:
    """Not even opened. `scope` has the last word on what is shown."""
    return [*secrets.NAMES, *secrets.FOLDERS, *(f"**/{folder}/{name}" for folder, name in secrets.PLACES)]
