"""Takes from a repository's configuration what it would have git run. For the few commands that must work with that
configuration: a checkout has to know about line ends, and nothing about the repository's own programs.

Filters that the user has set up for all repositories stay, such as git-lfs. Hooks never run.
"""

from collections.abc import Iterator

from switchtower.tools.git.plumbing.git import GitRunner
from switchtower.tools.running.leash import CancelScope

_THE_USERS = frozenset({b"system", b"global"})
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}


def override_programs(git: GitRunner, cancel_scope: CancelScope) -> GitRunner:
    """The same, with what is configured now overruled. Ask where it will work: some settings hold in one place only."""
    listed = git.run(cancel_scope, "config", "--list", "--name-only", "--show-scope", "-z").split(b"\0")
    overrules = dict(_iterate_overrides(dict.fromkeys(zip(listed[::2], listed[1::2], strict=False))))
    variables = {"GIT_CONFIG_COUNT": str(len(overrules))}
    for number, (key, value) in enumerate(overrules.items()):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return GitRunner(git.cwd, {**git.variables, **variables})


def _iterate_overrides(settings: dict[tuple[bytes, bytes], None]) -> Iterator[tuple[str, str]]:
    for scope, key in settings:
        section, _, rest = key.decode(errors="surrogateescape").partition(".")
        name, dot, _ = rest.rpartition(".")
        if section == "hook" and dot:
            yield f"hook.{name}.enabled", "false"
        elif section == "filter" and dot and scope not in _THE_USERS:
            yield from ((f"filter.{name}.{what}", value) for what, value in _NO_FILTER.items())
