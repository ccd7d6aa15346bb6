"""The commands that always need an approval, whatever a rule allows, because their effect cannot be undone.

It is a list of the usual accidents, not a security boundary: a command that is missing here still needs an approval like any
other.
"""

import re
from functools import cache

from msgspec import Struct

from switchtower.core.policy import invocations, paths, patterns, programs, shell


class DestructivePattern(Struct, frozen=True):
    """A command, and what makes it destructive. A row without options and words matches every use of the command."""

    pattern: str
    reason: str
    letters: str = ""
    """Single-letter options, alone or in a cluster."""
    options: tuple[str, ...] = ()
    """Long options, also when shortened."""
    words: re.Pattern[str] | None = None


_DELETES = "it deletes files for good"
_DISCARDS = "it throws away changes that git has no copy of"
_HISTORY = "it changes a history that others may have"
_PUBLISHES = "it publishes to others"
_SYSTEM = "it changes the machine itself"
_RIGHTS = "it changes who may do what"
_MASTER = "it runs with the rights of somebody else"
_KILLS = "it ends processes by force"
_CLOUD = "it takes down or changes what runs elsewhere"
_DATA = "it deletes data for good"
_SQL = re.compile(r"\b(drop|truncate|delete\s+from|alter)\b", re.IGNORECASE)
_REMOVERS = re.compile(r"(^|/)(rm|unlink|rmdir|shred)$", re.IGNORECASE)

_WHOLE = {
    _DELETES: "shred srm wipe",
    _DATA: "dd mkfs mke2fs mkswap wipefs fdisk sfdisk cfdisk gdisk sgdisk parted blkdiscard cryptsetup lvremove vgremove pvremove"
    " truncate dropdb dropuser",
    _RIGHTS: "chmod chown chgrp setfacl chattr setcap passwd chpasswd useradd userdel usermod groupadd visudo adduser deluser",
    _MASTER: "sudo doas su pkexec runuser gosu su-exec",
    _KILLS: "pkill killall skill fuser",
    _SYSTEM: "shutdown reboot halt poweroff init telinit crontab at batch systemctl service launchctl iptables ip6tables nft ufw"
    " firewall-cmd mount umount swapoff swapon modprobe insmod rmmod sysctl update-rc.d chkconfig loginctl kexec",
}

ROWS = (
    *(DestructivePattern(name, reason) for reason, names in _WHOLE.items() for name in names.split()),
    DestructivePattern("rm", _DELETES, letters="rRf", options=("recursive", "force", "no-preserve-root")),
    *(DestructivePattern(name, _DELETES, words=_REMOVERS) for name in ("xargs", "parallel", "find", "fd", "fdfind", "rush")),
    DestructivePattern("find", _DELETES, options=("delete",)),
    DestructivePattern("rsync", _DELETES, options=("delete", "del", "remove-source-files")),
    DestructivePattern("git reset", _DISCARDS, options=("hard", "merge", "keep")),
    DestructivePattern("git clean", _DISCARDS),
    DestructivePattern("git checkout", _DISCARDS, letters="fB", options=("force",), words=re.compile(r"^(--|\.|:/|\*|\./.*)$")),
    DestructivePattern("git switch", _DISCARDS, letters="fC", options=("force", "force-create", "discard-changes")),
    DestructivePattern("git restore", _DISCARDS),
    DestructivePattern("git stash drop", _DISCARDS),
    DestructivePattern("git stash clear", _DISCARDS),
    DestructivePattern("git branch", _DISCARDS, letters="DMf", options=("force",)),
    DestructivePattern("git worktree remove", _DISCARDS, letters="f", options=("force",)),
    DestructivePattern("git update-ref", _HISTORY),
    DestructivePattern("git reflog expire", _DISCARDS),
    DestructivePattern("git reflog delete", _DISCARDS),
    DestructivePattern("git gc", _DISCARDS, options=("prune",)),
    DestructivePattern("git filter-branch", _HISTORY),
    DestructivePattern("git filter-repo", _HISTORY),
    DestructivePattern(
        "git push",
        _HISTORY,
        letters="fd",
        options=("force", "force-with-lease", "force-if-includes", "delete", "mirror", "prune"),
        words=re.compile(r"^[+:]."),
    ),
    DestructivePattern("kill", _KILLS, words=re.compile(r"^-?(9|(sig)?kill|-1)$", re.IGNORECASE)),
    *(
        DestructivePattern(command, _PUBLISHES)
        for command in (
            *(
                f"{name} {verb}"
                for name in ("npm", "pnpm", "yarn", "bun")
                for verb in ("publish", "unpublish", "deprecate", "dist-tag")
            ),
            *(
                f"{name} publish"
                for name in ("cargo", "poetry", "uv", "flit", "hatch", "pdm", "rye", "lerna", "changeset", "vsce", "ovsx")
            ),
            *(f"{name} push" for name in ("gem", "docker", "podman", "buildah", "skopeo", "helm", "nuget", "crane")),
            "yarn npm publish",
            "cargo yank",
            "gem yank",
            "twine upload",
            "python setup.py upload",
            "dotnet nuget push",
            "mvn deploy",
            "gradle publish",
            "gradlew publish",
            "docker image push",
            "docker compose push",
            "gh release",
            "gh repo delete",
            "gh pr merge",
            "glab release",
            "semantic-release",
            "goreleaser",
            "np",
        )
    ),
    DestructivePattern("docker buildx", _PUBLISHES, options=("push",)),
    DestructivePattern("docker build", _PUBLISHES, options=("push",)),
    *(
        DestructivePattern(command, _CLOUD)
        for command in (
            *(f"kubectl {verb}" for verb in ("delete", "drain", "replace", "apply", "scale")),
            *(
                f"{name} {verb}"
                for name in ("terraform", "tofu", "terragrunt")
                for verb in ("destroy", "apply", "import", "taint")
            ),
            "terraform state rm",
            "pulumi destroy",
            "pulumi up",
            "helm uninstall",
            "helm delete",
            "aws s3 rm",
            "aws s3 rb",
            "aws cloudformation delete-stack",
            "aws ec2 terminate-instances",
            "gcloud projects delete",
            "az group delete",
            "heroku apps:destroy",
            "fly deploy",
            "flyctl deploy",
            "vercel deploy",
            "netlify deploy",
            "serverless remove",
            "cdk destroy",
        )
    ),
    *(
        DestructivePattern(f"docker {verb}", _DATA)
        for verb in ("system prune", "volume rm", "volume prune", "image prune", "container prune")
    ),
    DestructivePattern("docker rm", _DATA, letters="fv", options=("force", "volumes")),
    DestructivePattern("docker compose down", _DATA, letters="v", options=("volumes",)),
    *(
        DestructivePattern(name, _DATA, words=_SQL)
        for name in ("psql", "mysql", "mariadb", "sqlite3", "mycli", "pgcli", "duckdb", "sqlcmd")
    ),
    DestructivePattern("redis-cli", _DATA, words=re.compile(r"^flush(all|db)$", re.IGNORECASE)),
    DestructivePattern("mongo", _DATA, words=re.compile(r"drop", re.IGNORECASE)),
    DestructivePattern("mongosh", _DATA, words=re.compile(r"drop", re.IGNORECASE)),
)

_FETCHED_CODE = "it runs what it has fetched, and nobody has seen that"
_RUN_FILES = programs.SHELLS | {"source", ".", "eval"}
_FETCHERS = frozenset({"curl", "wget", "wget2", "fetch", "aria2c", "axel"})


def find_destructive_reasons(found: invocations.Invocations) -> tuple[str, ...]:
    """Returns every reason why this is destructive, in clauses that start with "it"."""
    hits = [why for words in found.commands if (why := _find_row_match(words)) is not None]
    if any(_runs_what_it_fetches(script) for script in found.scripts):
        hits.append(_FETCHED_CODE)
    return tuple(dict.fromkeys(hits))


@cache
def _group_by_program() -> dict[str, list[DestructivePattern]]:
    table: dict[str, list[DestructivePattern]] = {}
    for row in ROWS:
        table.setdefault(row.pattern.split()[0], []).append(row)
    return table


def _find_row_match(words: invocations.Words) -> str | None:
    table = _group_by_program()
    name = programs.normalize_program_name(words[0].text)
    rows = table.get(name) or table.get(name.partition(".")[0])
    if words[0].wild:
        wildcard = paths.parse_glob(name)
        rows = [row for program, all_rows in table.items() if paths.match_glob(wildcard, program) for row in all_rows]
    for row in rows or ():
        # The program is known by now, under whatever path and version; the rest of the row is compared word by word.
        if patterns.match_arguments(patterns.parse_rule_pattern(row.pattern).words[1:], words[1:]) and _is_flagged(
            row, words[1:]
        ):
            return row.reason
    return None


def _is_flagged(row: DestructivePattern, words: invocations.Words) -> bool:
    if not row.letters and not row.options and row.words is None:
        return True
    return any(_flags(row, word) for word in words)


def _flags(row: DestructivePattern, word: shell.ShellWord) -> bool:
    text = word.text
    if not word.known or (row.words is not None and row.words.search(text)):
        return True
    if not text.startswith("-"):
        return False
    name = text.lstrip("-").partition("=")[0]
    if text.startswith("--"):
        return bool(name) and any(option.startswith(name) for option in row.options)
    return name in row.options or any(letter in text[1:] for letter in row.letters)


def _runs_what_it_fetches(script: shell.Script) -> bool:
    calls = [frozenset(invocations.list_program_names(command.words)) for command in script.commands]
    fetches = [not programs.DOWNLOADERS.isdisjoint(names) for names in calls]
    interprets = [not (programs.INTERPRETERS | _RUN_FILES).isdisjoint(names) for names in calls]
    for stages in script.pipelines:
        fetched = False
        for first, last in stages:
            if fetched and any(interprets[first:last]):
                return True
            fetched = fetched or any(fetches[first:last])
    for place, command in enumerate(script.commands):
        first, last = command.inner
        if interprets[place] and any(fetches[first:last]):
            return True
    everything = frozenset().union(*calls)
    return not _FETCHERS.isdisjoint(everything) and not _RUN_FILES.isdisjoint(everything)
