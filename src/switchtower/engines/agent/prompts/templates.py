"""Skills and prompts by name, from the user's folder and from the workspace.

A workspace comes from anywhere and must not change the meaning of a command that the user knows. So the user's template always
keeps its name, and the workspace's template of the same name is called `workspace:NAME`.

The front matter is the lines between two `---` at the top of a Markdown file. It is not parsed as YAML: only `key: value` at the
left edge is read, and the further contents of files that were written for other programs are skipped.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from switchtower.engines.agent.prompts import files

TEMPLATE_LIMIT = 64 * 1024
LONGEST_DESCRIPTION = 200
_HEAD = 8 * 1024
_IN_WORKSPACE = ".tower"

TemplateOrigin = Literal["user", "workspace"]
EXTENSION_PREFIX = "extension"
_RESERVED: frozenset[str] = frozenset({"user", "workspace", EXTENSION_PREFIX})
"""First parts of a name that state its origin: no folder may claim them."""


class Template(Struct, frozen=True):
    """A Markdown file that a message can call with `/name`."""

    name: str
    kind: files.TemplateKind
    description: str
    path: str
    """Relative to the workspace for the workspace's own, absolute for the user's."""
    origin: TemplateOrigin
    arguments: str = ""
    """A hint for the text behind the name."""


class TemplateCatalog(Struct, frozen=True):
    templates: dict[str, Template]
    unusable: dict[str, str]
    """For each file that has a template's name but is not a template, the reason."""


def load_catalog(workspace: str, user_folder: Path | None, *, trusted: bool = True) -> TemplateCatalog:
    """Loads the templates that can be called by name; a workspace that is not `trusted` provides none."""
    known = TemplateCatalog({}, {})
    for template in _iterate_templates(workspace, user_folder, known.unusable, trusted=trusted):
        for name in (template.name, f"{template.origin}:{template.name}", f"{template.origin}:{template.kind}:{template.name}"):
            if name not in known.templates:
                known.templates[name] = msgspec.structs.replace(template, name=name)
                break
    return known


def read_template(template: Template, workspace: str, user_folder: Path | None) -> str:
    """Returns the template without its front matter. Raises `files.PromptFileError`."""
    document = files.read_document(_make_folder(template.origin, workspace, user_folder), template.path, limit=TEMPLATE_LIMIT)
    if document.cut:
        raise files.PromptFileError(f"it is longer than {TEMPLATE_LIMIT // 1024} KiB")
    return split_front_matter(document.text.replace("\r\n", "\n")).body.strip()


def _iterate_templates(
    workspace: str, user_folder: Path | None, unusable: dict[str, str], *, trusted: bool
) -> Iterator[Template]:
    """Yields the user's templates first, and prompts before skills: the first template of a name gets the plain name."""
    tops: list[tuple[TemplateOrigin, str]] = [("workspace", _IN_WORKSPACE)] if trusted else []
    if user_folder is not None:
        tops.insert(0, ("user", str(user_folder)))
    for origin, top in tops:
        folder = _make_folder(origin, workspace, user_folder)
        for kind, inner in files.FOLDERS.items():
            for spot in files.find_template_files(folder, f"{top}/{inner}", kind):
                try:
                    yield _read(folder, spot, kind, origin)
                except files.PromptFileError as trouble:
                    unusable.setdefault(":".join(spot.parts), f"`{spot.path}` cannot be used: {trouble}")


def _read(folder: files.PromptFolder, spot: files.TemplateFile, kind: files.TemplateKind, origin: TemplateOrigin) -> Template:
    document = files.read_document(folder, spot.path, limit=_HEAD)
    if document.size > TEMPLATE_LIMIT:
        raise files.PromptFileError(f"it is longer than {TEMPLATE_LIMIT // 1024} KiB")
    fields, body = split_front_matter(document.text.replace("\r\n", "\n"))
    if not body.strip() and not document.cut:
        raise files.PromptFileError("it is empty")
    given = fields.get("name", "")
    parts = (*spot.parts[:-1], given if files.PART.fullmatch(given) else spot.parts[-1])
    if parts[0] in _RESERVED:
        raise files.PromptFileError(f"a name cannot begin with `{parts[0]}`")
    first_line = next((line for line in body.splitlines() if line.strip()), "")
    return Template(
        name=":".join(parts),
        kind=kind,
        description=files.to_one_line(fields.get("description", first_line.lstrip("# \t")), longest=LONGEST_DESCRIPTION),
        path=spot.path,
        origin=origin,
        arguments=files.to_one_line(fields.get("arguments", fields.get("argument-hint", "")), longest=LONGEST_DESCRIPTION),
    )


def _make_folder(origin: TemplateOrigin, workspace: str, user_folder: Path | None) -> files.PromptFolder:
    return files.PromptFolder(workspace) if origin == "workspace" else files.PromptFolder(str(user_folder), own=True)


_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63}):[ \t]+(\S.*)")
_MOST_LINES = 100


class FrontMatter(NamedTuple):
    """The two parts of a file."""

    fields: Mapping[str, str]
    body: str


def split_front_matter(text: str) -> FrontMatter:
    """Splits the file. Without a closing `---` there is no front matter: the first line is then a horizontal rule."""
    lines = text.split("\n", _MOST_LINES)
    if lines[0].rstrip() != "---":
        return FrontMatter({}, text)
    end = next((number for number, line in enumerate(lines[1:_MOST_LINES], 1) if line.rstrip() == "---"), None)
    if end is None:
        return FrontMatter({}, text)
    fields: dict[str, str] = {}
    for line in lines[1:end]:
        if pair := _PAIR.fullmatch(line.rstrip()):
            fields.setdefault(pair[1].lower(), _unquote(pair[2]))
    return FrontMatter(fields, "\n".join(lines[end + 1 :]))


def _unquote(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
