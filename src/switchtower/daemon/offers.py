"""What a message can begin with, as `/name`: skills and prompts from files, and the commands of extensions. Blocks."""

from collections.abc import Iterator

from switchtower.core import workshop
from switchtower.engines.agent.prompts import templates as prompt_templates
from switchtower.engines.agent.prompts.shelf import PromptCatalog
from switchtower.extensions.loader import ExtensionLoader, to_one_line

KIND, ORIGIN = "extension", "plugin"


def list_templates(store: PromptCatalog, extensions: ExtensionLoader, workspace: str) -> list[workshop.TemplateInfo]:
    listed = [
        workshop.TemplateInfo(template.name, template.kind, template.description, template.path, template.origin)
        for template in store.list_templates(workspace)
    ]
    taken = {offer.name: offer.path for offer in listed}
    return [*listed, *_list_extension_commands(extensions, taken)]


def _list_extension_commands(extensions: ExtensionLoader, taken: dict[str, str]) -> Iterator[workshop.TemplateInfo]:
    loaded = extensions.load()
    for name, offer in sorted(loaded.offers.items()):
        description = to_one_line(offer.command.description)
        if name in taken:
            description = f"{description} (`/{name}` is `{taken[name]}` here)"
            name = f"{prompt_templates.EXTENSION_PREFIX}:{name}"
        yield workshop.TemplateInfo(name, KIND, description, offer.path, ORIGIN)
    for broken in loaded.broken:
        yield workshop.TemplateInfo(broken.name, KIND, f"cannot be used: {broken.reason}", broken.path, ORIGIN)
