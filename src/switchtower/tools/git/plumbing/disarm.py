"""Takes from a repository's configuration what it would have git run. For the few commands that must work with that
configuration: a checkout has to know about line ends, and nothing about the repository's own programs.

Filters that the user has set up for all repositories stay, such as git-lfs. Hooks never run.
"""

from collections.abc import Iterator

from switchtower.tools.git.plumbing.git import Git
from switchtower.tools.running.leash import Leash

_THE_USERS = frozenset({b"system", b"global"})
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}


def disarmed(git: Git, held: Leash) -> Git:
    """The same, with what is configured now overruled. Ask where it will work: some settings hold in one place only."""
    listed = git.output(held, "config", "--list", "--name-only", "--show-scope", "-z").split(b"\0")
    overrules = dict(_overrules(dict.fromkeys(zip(listed[::2], listed[1::2], strict=False))))
    variables = {"GIT_CONFIG_COUNT": str(len(overrules))}
    for number, (key, value) in enumerate(overrules.items()):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return Git(git.cwd, {**git.variables, **variables})


def _overrules(settings: dict[tuple[bytes, bytes], None]) -> Iterator[tuple[str, str]]:
    for scope, key in settings:
        section, _, rest = key.decode(errors="surrogateescape").partition(".")
        name, dot, _ = rest.rpartition(".")
        if section == "hook" and dot:
            yield f"hook.{name}.enabled", "false"
        elif section == "filter" and dot and scope not in _THE_USERS:
            yield from ((f"filter.{name}.{what}", value) for what, value in _NO_FILTER.items())
