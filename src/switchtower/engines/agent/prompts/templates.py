"""Skills and prompts by name, from the user's folder and from the workspace.

A workspace comes from anywhere and must not put its words into a command that the user knows. So the user's template has
its name for good, and the workspace's of the same name is called `workspace:NAME`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from switchtower.engines.agent.prompts import blocks, folders, frontmatter, reading

TEMPLATE_LIMIT = 64 * 1024
LONGEST_DESCRIPTION = 200
_HEAD = 8 * 1024
_IN_WORKSPACE = ".tower"

TemplateOrigin = Literal["user", "workspace"]
EXTENSION_PREFIX = "extension"
_RESERVED: frozenset[str] = frozenset({"user", "workspace", EXTENSION_PREFIX})
"""First parts of a name that say where it comes from: no folder may claim them."""


class Template(Struct, frozen=True):
    """A Markdown file that a message can call with `/name`."""

    name: str
    kind: folders.TemplateKind
    description: str
    path: str
    """Relative to the workspace for the workspace's own, absolute for the user's."""
    origin: TemplateOrigin
    arguments: str = ""
    """A hint at what to write behind the name."""


class TemplateCatalog(Struct, frozen=True):
    templates: dict[str, Template]
    unusable: dict[str, str]
    """Why a file that has a template's name is none."""


def load_catalog(workspace: str, user_folder: Path | None, *, trusted: bool = True) -> TemplateCatalog:
    """What can be called by name; of a workspace that is not `trusted`, nothing."""
    known = TemplateCatalog({}, {})
    for template in _iterate_templates(workspace, user_folder, known.unusable, trusted=trusted):
        for name in (template.name, f"{template.origin}:{template.name}", f"{template.origin}:{template.kind}:{template.name}"):
            if name not in known.templates:
                known.templates[name] = msgspec.structs.replace(template, name=name)
                break
    return known


def read_template(template: Template, workspace: str, user_folder: Path | None) -> str:
    """The template without its front matter. Raises `reading.Trouble`."""
    document = reading.read_document(_make_folder(template.origin, workspace, user_folder), template.path, limit=TEMPLATE_LIMIT)
    if document.cut:
        raise reading.PromptFileError(f"it is longer than {TEMPLATE_LIMIT // 1024} KiB")
    return frontmatter.split_front_matter(document.text.replace("\r\n", "\n")).body.strip()


def _iterate_templates(
    workspace: str, user_folder: Path | None, unusable: dict[str, str], *, trusted: bool
) -> Iterator[Template]:
    """The user's come first, and prompts before skills: who comes first gets the plain name."""
    tops: list[tuple[TemplateOrigin, str]] = [("workspace", _IN_WORKSPACE)] if trusted else []
    if user_folder is not None:
        tops.insert(0, ("user", str(user_folder)))
    for origin, top in tops:
        folder = _make_folder(origin, workspace, user_folder)
        for kind, inner in folders.FOLDERS.items():
            for spot in folders.find_template_files(folder, f"{top}/{inner}", kind):
                try:
                    yield _read(folder, spot, kind, origin)
                except reading.PromptFileError as trouble:
                    unusable.setdefault(":".join(spot.parts), f"`{spot.path}` cannot be used: {trouble}")


def _read(
    folder: reading.PromptFolder, spot: folders.TemplateFile, kind: folders.TemplateKind, origin: TemplateOrigin
) -> Template:
    document = reading.read_document(folder, spot.path, limit=_HEAD)
    if document.size > TEMPLATE_LIMIT:
        raise reading.PromptFileError(f"it is longer than {TEMPLATE_LIMIT // 1024} KiB")
    fields, body = frontmatter.split_front_matter(document.text.replace("\r\n", "\n"))
    if not body.strip() and not document.cut:
        raise reading.PromptFileError("it is empty")
    given = fields.get("name", "")
    parts = (*spot.parts[:-1], given if folders.PART.fullmatch(given) else spot.parts[-1])
    if parts[0] in _RESERVED:
        raise reading.PromptFileError(f"a name cannot begin with `{parts[0]}`")
    first_line = next((line for line in body.splitlines() if line.strip()), "")
    return Template(
        name=":".join(parts),
        kind=kind,
        description=blocks.to_one_line(fields.get("description", first_line.lstrip("# \t")), longest=LONGEST_DESCRIPTION),
        path=spot.path,
        origin=origin,
        arguments=blocks.to_one_line(fields.get("arguments", fields.get("argument-hint", "")), longest=LONGEST_DESCRIPTION),
    )


def _make_folder(origin: TemplateOrigin, workspace: str, user_folder: Path | None) -> reading.PromptFolder:
    return reading.PromptFolder(workspace) if origin == "workspace" else reading.PromptFolder(str(user_folder), own=True)
