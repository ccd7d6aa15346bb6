"""Presets: reusable session settings, each in a TOML file, `.tower/presets/NAME.toml` in the workspace or `presets/NAME.toml` in
the user's folder. This module reads and checks them; the caller that starts a session decides which settings apply.

Every complaint names the key it is about. A workspace's preset comes with whatever was cloned: it may ask for less than usual,
never for more.

When both folders have a preset of one name, the user's has the name, as with skills and prompts: a folder that another author
wrote does not change what a name means. The workspace's preset is then `workspace:NAME`. Nothing is cached: each call reads the
files as they are. The calls block.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchtower.core import events, redact
from switchtower.core import policy as core_policy
from switchtower.engines.agent.prompts import files
from switchtower.models import entries
from switchtower.tools.mcp import config as mcp

FILE_LIMIT = 64 * 1024
SYSTEM_LIMIT = 64 * 1024
"""The most bytes of the system text: it is journalled with the session and sent with every request."""
MOST_DOTS = 100
"""The most dots in one line. A key of thousands of parts would keep the parser busy for minutes."""
LONGEST_DESCRIPTION = 200
_LONGEST_NAME = 200
_POLICIES_OF_WORKSPACE = ("read-only", "ask")
_MOST = {"max_turns": 2**31, "max_tokens": 2**53, "max_cost": 10**9, "max_minutes": 10**9}

_Converted = TypeVar("_Converted")

PresetOrigin = Literal["user", "workspace"]


class InvalidPreset(Exception):
    """The file is not a preset. The text gives the reason and can follow the file's name and a colon."""


class PresetDefinition(Struct, frozen=True, kw_only=True):
    """The settings of a preset; a setting that it leaves open is None."""

    description: str = ""
    system: str | None = None
    system_file: str | None = None
    """A file beside the preset that contains the system text."""
    provider: str | None = None
    model: str | None = None
    policy: str | None = None
    thinking: str | None = None
    budget: events.Budget = events.Budget()
    servers: dict[str, dict[str, Any]] = {}


class _BudgetKeys(Struct, frozen=True, forbid_unknown_fields=True):
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_minutes: float | None = None


class _PresetKeys(Struct, frozen=True, forbid_unknown_fields=True):
    description: str = ""
    system: str | None = None
    system_file: str | None = None
    provider: str | None = None
    model: str | None = None
    policy: str | None = None
    thinking: str | None = None
    budget: _BudgetKeys = _BudgetKeys()
    mcpServers: dict[str, dict[str, Any]] = {}


def parse_preset(text: str, origin: PresetOrigin, redactor: redact.Redactor) -> PresetDefinition:
    """Raises `InvalidPreset`."""
    keys = _parse_keys(text)
    if keys.system is not None and keys.system_file is not None:
        raise InvalidPreset("`system` and `system_file` exclude each other; hint: keep one")
    for key in ("provider", "model"):
        _check_name(key, getattr(keys, key))
    _check_choice("thinking", keys.thinking, entries.THINKING)
    _check_policy(keys.policy, origin)
    return PresetDefinition(
        description=files.to_one_line(keys.description, longest=LONGEST_DESCRIPTION),
        system=check_system_prompt(keys.system) if keys.system is not None else None,
        system_file=keys.system_file,
        provider=keys.provider,
        model=keys.model,
        policy=keys.policy,
        thinking=keys.thinking,
        budget=_make_budget(keys.budget),
        servers=_check_servers(keys.mcpServers, redactor),
    )


def check_system_prompt(text: str, key: str = "system") -> str:
    if len(text.encode()) > SYSTEM_LIMIT:
        raise InvalidPreset(f"`{key}` is longer than {SYSTEM_LIMIT // 1024} KiB")
    if not text.strip():
        raise InvalidPreset(f"`{key}` is empty; hint: leave it out to have the usual words")
    return text.strip()


def _parse_keys(text: str) -> _PresetKeys:
    text = text.replace("\r\n", "\n")
    if any(line.count(".") > MOST_DOTS for line in text.split("\n")):
        raise InvalidPreset(f"a line has more than {MOST_DOTS} dots; hint: break it, or put a long text into a `system_file`")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidPreset(f"it is not TOML: {error}") from None
    except (RecursionError, ValueError):
        raise InvalidPreset("it is not TOML that can be read: nested too deep, or with a number out of bounds") from None
    return _convert(document, _PresetKeys)


def _convert(value: Any, to: type[_Converted], inside: str = "") -> _Converted:
    try:
        return msgspec.convert(value, to)
    except msgspec.ValidationError as error:
        raise InvalidPreset(_explain_key_error(str(error), inside)) from None


_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def _explain_key_error(problem: str, inside: str) -> str:
    """Returns the decoder's complaint, with the key as the user wrote it."""
    what, _, where = problem.partition(" - at `")
    path = files.to_one_line(f"{inside}{where.removesuffix('`').removeprefix('$')}", longest=_LONGEST_NAME).removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(what):
        key = files.to_one_line(".".join(part for part in (path, unknown[1]) if part), longest=_LONGEST_NAME)
        known = _BudgetKeys if path == "budget" else _PresetKeys
        return f"there is no key `{key}`; hint: use some of {', '.join(known.__struct_fields__)}"
    return f"`{path}` is not of the right type: {what[:1].lower()}{what[1:]}"


def _check_name(key: str, value: str | None) -> None:
    if value is not None and not (value.strip() and len(value) <= _LONGEST_NAME and value.isprintable()):
        raise InvalidPreset(f"`{key}` is not a name; hint: see `tower models`")


def _check_choice(key: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        shown = files.to_one_line(value, longest=50)
        raise InvalidPreset(f"`{key}` cannot be `{shown}`; hint: use one of {', '.join(choices)}")


def _check_policy(profile: str | None, origin: PresetOrigin) -> None:
    _check_choice("policy", profile, core_policy.PROFILES)
    if profile is not None and origin == "workspace" and profile not in _POLICIES_OF_WORKSPACE:
        raise InvalidPreset(
            f"`policy` is `{profile}`, and a file of the workspace may not decide that less is asked; "
            f"hint: use {' or '.join(_POLICIES_OF_WORKSPACE)} in it, or start the session with `--policy {profile}` yourself"
        )


def _make_budget(limits: _BudgetKeys) -> events.Budget:
    for key, most in _MOST.items():
        limit = getattr(limits, key)
        if limit is not None and not (math.isfinite(limit) and 0 < limit <= most):
            raise InvalidPreset(f"`budget.{key}` is not above 0 and at most {most}")
    return events.Budget(limits.max_turns, limits.max_tokens, limits.max_cost, limits.max_minutes)


def _check_servers(servers: dict[str, dict[str, Any]], redactor: redact.Redactor) -> dict[str, dict[str, Any]]:
    if len(servers) > mcp.MOST_SERVERS:
        raise InvalidPreset(f"`mcpServers` has more than {mcp.MOST_SERVERS} servers")
    read = {name: _convert(entry, mcp.ServerEntry, f"mcpServers.{name}") for name, entry in servers.items()}
    for name, entry in read.items():
        # Redaction would replace the secret with a mark when the session is journalled, and the server would get the mark.
        if (part := mcp.find_literal_secret(entry, redactor)) is not None:
            key = files.to_one_line(f"mcpServers.{name}.{part}", longest=_LONGEST_NAME)
            raise InvalidPreset(f"`{key}` seems to hold a secret; hint: set a variable for the daemon and write `${{VARIABLE}}`")
    # The fields are spelled as in the files; fields that only other clients know are left out.
    return {
        name: {key: entry[key] for key in mcp.ServerEntry.__struct_fields__ if key in entry} for name, entry in servers.items()
    }


FOLDER = "presets"
MOST_LISTED = 100
"""The most names in one folder."""
UNTRUSTED = "you have not trusted its folder; hint: `tower trust add` trusts it"
_IN_WORKSPACE = f".tower/{FOLDER}"
_SUFFIX = ".toml"


class PresetFile(Struct, frozen=True, kw_only=True):
    """A file that has a preset's name: its settings, or the reason why it is not a preset."""

    name: str
    origin: PresetOrigin
    path: str
    """Relative to the workspace for its own presets, absolute for the user's."""
    parsed: PresetDefinition = PresetDefinition()
    problem: str = ""

    @property
    def preset(self) -> events.Preset:
        """Returns the part of the preset that a session keeps."""
        return events.Preset(self.name, self.origin, self.path, self.parsed.system, self.parsed.servers)


class PresetCatalog:
    def __init__(
        self, user_folder: Path | None, redactor: redact.Redactor, trusts: Callable[[str], bool] = lambda workspace: True
    ) -> None:
        """`trusts` returns whether the owner trusts a workspace, and so whether its presets can be used."""
        self._trusts = trusts
        self._user_folder = user_folder.absolute() if user_folder is not None else None
        self._redactor = redactor

    def list_presets(self, workspace: str) -> list[PresetFile]:
        """Lists all presets, usable or not, under the names that they can be called with."""
        return [found for name in self.list_names(workspace) if (found := self.find_preset(name, workspace)) is not None]

    def list_names(self, workspace: str) -> list[str]:
        by_origin = {origin: set(self._list_folder_names(folder, top)) for origin, folder, top in self._list_folders(workspace)}
        theirs, own = by_origin["workspace"], by_origin.get("user", set())
        return sorted([*own, *(f"workspace:{name}" if name in own else name for name in theirs)])

    def find_preset(self, name: str, workspace: str) -> PresetFile | None:
        """Returns None when no file has that name. A link that leads nowhere, or out of the workspace, counts as a file."""
        wanted, colon, plain = name.partition(":")
        plain = plain if colon else name
        if not files.PART.fullmatch(plain) or (colon and wanted not in ("user", "workspace")):
            return None
        for origin, folder, top in self._list_folders(workspace):
            path = f"{top}/{plain}{_SUFFIX}"
            if (not colon or wanted == origin) and files.has_entry(folder, path):
                found = PresetFile(name=name, origin=origin, path=path)
                if origin == "workspace" and not self._trusts(workspace):
                    return replace(found, problem=f"`{path}` cannot be used: {UNTRUSTED}")
                try:
                    return replace(found, parsed=self._read_preset(folder, path, origin))
                except (files.PromptFileError, InvalidPreset) as problem:
                    return replace(found, problem=f"`{path}` cannot be used: {problem}")
        return None

    def _list_folders(self, workspace: str) -> Iterator[tuple[PresetOrigin, files.PromptFolder, str]]:
        """Yields the folders; the one that takes precedence comes first."""
        if self._user_folder is not None:
            yield "user", files.PromptFolder(str(self._user_folder), own=True), f"{self._user_folder}/{FOLDER}"
        yield "workspace", files.PromptFolder(workspace), _IN_WORKSPACE

    def _list_folder_names(self, folder: files.PromptFolder, top: str) -> Iterator[str]:
        try:
            entries = files.list_folder(folder, top, most=MOST_LISTED).entries
        except files.PromptFileError:
            return
        for entry in entries:
            name = entry.name.removesuffix(_SUFFIX)
            if name != entry.name and files.PART.fullmatch(name):
                yield name

    def _read_preset(self, folder: files.PromptFolder, path: str, origin: PresetOrigin) -> PresetDefinition:
        document = files.read_document(folder, path, limit=FILE_LIMIT)
        if document.cut:
            raise InvalidPreset(f"it is longer than {FILE_LIMIT // 1024} KiB; hint: put a long text into a `system_file`")
        said = parse_preset(document.text, origin, self._redactor)
        return said if said.system_file is None else replace(said, system=_read_system_prompt(folder, path, said.system_file))


def _read_system_prompt(folder: files.PromptFolder, preset: str, name: str) -> str:
    """Reads a file in the preset's own folder only: a preset is not a way to send any file to a model."""
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts or not inside.parts:
        raise InvalidPreset("`system_file` is not a path inside the preset's own folder")
    top = PurePosixPath(preset).parent
    try:
        document = files.read_document(folder, str(top / inside), limit=SYSTEM_LIMIT)
    except files.PromptFileError as trouble:
        raise InvalidPreset(f"`system_file`: {trouble}") from trouble
    # The user chose the links in the user's folder; a link in the workspace may not leave that folder either.
    if not folder.own and top not in PurePosixPath(document.path).parents:
        raise InvalidPreset("`system_file` leads out of the preset's own folder")
    if document.cut:
        raise InvalidPreset(f"`system_file` is longer than {SYSTEM_LIMIT // 1024} KiB")
    return check_system_prompt(document.text, "system_file")
