"""Presets by name: `.tower/presets/NAME.toml` in the workspace, `presets/NAME.toml` in the user's folder.

The user's has the name when both have one, as with skills and prompts: a folder that somebody else wrote does not change what a
name means. The workspace's is then `workspace:NAME`. Nothing is remembered: each call looks at the files as they are. The
calls block.
"""

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from switchtower.core import events, redact
from switchtower.engines.agent.presets import definition
from switchtower.engines.agent.prompts import folders, reading

FOLDER = "presets"
MOST_LISTED = 100
"""Names in one folder."""
UNTRUSTED = "you have not trusted its folder; hint: `tower trust add` trusts it"
_IN_WORKSPACE = f".tower/{FOLDER}"
_SUFFIX = ".toml"


class PresetFile(Struct, frozen=True, kw_only=True):
    """A file that has a preset's name: what it says, or why it is none."""

    name: str
    origin: definition.PresetOrigin
    path: str
    """Relative to the workspace for the workspace's own, absolute for the user's."""
    parsed: definition.PresetDefinition = definition.PresetDefinition()
    problem: str = ""

    @property
    def preset(self) -> events.Preset:
        """What a session keeps of it."""
        return events.Preset(self.name, self.origin, self.path, self.parsed.system, self.parsed.servers)


class PresetCatalog:
    def __init__(
        self, user_folder: Path | None, redactor: redact.Redactor, trusts: Callable[[str], bool] = lambda workspace: True
    ) -> None:
        """`trusts` says whether the owner trusts a workspace, and so whether its presets can be used."""
        self._trusts = trusts
        self._user_folder = user_folder.absolute() if user_folder is not None else None
        self._redactor = redactor

    def list_presets(self, workspace: str) -> list[PresetFile]:
        """All there are, usable or not, by the names that they can be called with."""
        return [found for name in self.list_names(workspace) if (found := self.find_preset(name, workspace)) is not None]

    def list_names(self, workspace: str) -> list[str]:
        by_origin = {origin: set(self._list_folder_names(folder, top)) for origin, folder, top in self._list_folders(workspace)}
        theirs, own = by_origin["workspace"], by_origin.get("user", set())
        return sorted([*own, *(f"workspace:{name}" if name in own else name for name in theirs)])

    def find_preset(self, name: str, workspace: str) -> PresetFile | None:
        """None when there is no file of that name. A link that leads nowhere, or out of the workspace, is a file."""
        wanted, colon, plain = name.partition(":")
        plain = plain if colon else name
        if not folders.PART.fullmatch(plain) or (colon and wanted not in ("user", "workspace")):
            return None
        for origin, folder, top in self._list_folders(workspace):
            path = f"{top}/{plain}{_SUFFIX}"
            if (not colon or wanted == origin) and reading.has_entry(folder, path):
                found = PresetFile(name=name, origin=origin, path=path)
                if origin == "workspace" and not self._trusts(workspace):
                    return replace(found, problem=f"`{path}` cannot be used: {UNTRUSTED}")
                try:
                    return replace(found, parsed=self._read_preset(folder, path, origin))
                except (reading.PromptFileError, definition.InvalidPreset) as problem:
                    return replace(found, problem=f"`{path}` cannot be used: {problem}")
        return None

    def _list_folders(self, workspace: str) -> Iterator[tuple[definition.PresetOrigin, reading.PromptFolder, str]]:
        """The one that wins comes first."""
        if self._user_folder is not None:
            yield "user", reading.PromptFolder(str(self._user_folder), own=True), f"{self._user_folder}/{FOLDER}"
        yield "workspace", reading.PromptFolder(workspace), _IN_WORKSPACE

    def _list_folder_names(self, folder: reading.PromptFolder, top: str) -> Iterator[str]:
        try:
            entries = reading.list_folder(folder, top, most=MOST_LISTED).entries
        except reading.PromptFileError:
            return
        for entry in entries:
            name = entry.name.removesuffix(_SUFFIX)
            if name != entry.name and folders.PART.fullmatch(name):
                yield name

    def _read_preset(
        self, folder: reading.PromptFolder, path: str, origin: definition.PresetOrigin
    ) -> definition.PresetDefinition:
        document = reading.read_document(folder, path, limit=definition.FILE_LIMIT)
        if document.cut:
            raise definition.InvalidPreset(
                f"it is longer than {definition.FILE_LIMIT // 1024} KiB; hint: put a long text into a `system_file`"
            )
        said = definition.parse_preset(document.text, origin, self._redactor)
        return said if said.system_file is None else replace(said, system=_read_system_prompt(folder, path, said.system_file))


def _read_system_prompt(folder: reading.PromptFolder, preset: str, name: str) -> str:
    """The text of a file in the preset's own folder: a preset is not a way to have any file told to a model."""
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts or not inside.parts:
        raise definition.InvalidPreset("`system_file` is not a path inside the preset's own folder")
    top = PurePosixPath(preset).parent
    try:
        document = reading.read_document(folder, str(top / inside), limit=definition.SYSTEM_LIMIT)
    except reading.PromptFileError as trouble:
        raise definition.InvalidPreset(f"`system_file`: {trouble}") from trouble
    # A link in the user's folder is the user's word; one in the workspace may not leave the folder either.
    if not folder.own and top not in PurePosixPath(document.path).parents:
        raise definition.InvalidPreset("`system_file` leads out of the preset's own folder")
    if document.cut:
        raise definition.InvalidPreset(f"`system_file` is longer than {definition.SYSTEM_LIMIT // 1024} KiB")
    return definition.check_system_prompt(document.text, "system_file")
