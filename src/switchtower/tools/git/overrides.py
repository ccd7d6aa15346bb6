"""Settings of git that every command we start has, whatever repository it comes upon: a folder that a command or a download
has made does not get a program run by `git status`. Settings in the environment come before those of any file."""

from collections.abc import Iterable, Mapping

OVERRIDES = {
    # A folder with `HEAD`, `objects` and `refs` is a repository only when it is named, as with `git --git-dir`.
    "safe.bareRepository": "explicit",
    # Otherwise the program that it names is run by `git status`.
    "core.fsmonitor": "false",
    # An address such as `ext::sh -c …` is a command.
    "protocol.ext.allow": "never",
    # Only servers without git need the lists that this writes, into a folder that is read-only in a sandbox.
    "repack.updateServerInfo": "false",
}


def add_overrides(variables: Mapping[str, str], *, chosen: Iterable[str] = ()) -> dict[str, str]:
    """The same environment with these settings behind those that it brings, so that they count. Keys in `chosen` are left
    out."""
    left_out = {key.lower() for key in chosen}
    count = _read_count(variables)
    added = dict(variables)
    for key, value in OVERRIDES.items():
        if key.lower() not in left_out:
            added[f"GIT_CONFIG_KEY_{count}"] = key
            added[f"GIT_CONFIG_VALUE_{count}"] = value
            count += 1
    added["GIT_CONFIG_COUNT"] = str(count)
    return added


def list_overridden_keys(variables: Mapping[str, str]) -> list[str]:
    """The settings that an environment brings."""
    return [key for number in range(_read_count(variables)) if (key := variables.get(f"GIT_CONFIG_KEY_{number}"))]


def _read_count(variables: Mapping[str, str]) -> int:
    """Git refuses to work with a number that is none, or too high; then only ours are left."""
    written = variables.get("GIT_CONFIG_COUNT", "")
    count = int(written) if written.isascii() and written.isdigit() and len(written) < 5 else 0
    return count if all(f"GIT_CONFIG_KEY_{number}" in variables for number in range(count)) else 0
