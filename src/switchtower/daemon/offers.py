"""What a message can begin with, as `/name`: skills and prompts from files, and the commands of extensions. Blocks."""

from collections.abc import Iterator

from switchtower.core import workshop
from switchtower.engines.agent.prompts import templates as prompt_templates
from switchtower.engines.agent.prompts.shelf import Shelf
from switchtower.extensions.loader import Loader, described

KIND, ORIGIN = "extension", "plugin"


def templates(shelf: Shelf, extensions: Loader, workspace: str) -> list[workshop.TemplateOffer]:
    listed = [
        workshop.TemplateOffer(template.name, template.kind, template.description, template.path, template.origin)
        for template in shelf.listed(workspace)
    ]
    taken = {offer.name: offer.path for offer in listed}
    return [*listed, *_of_extensions(extensions, taken)]


def _of_extensions(extensions: Loader, taken: dict[str, str]) -> Iterator[workshop.TemplateOffer]:
    loaded = extensions.load()
    for name, offer in sorted(loaded.offers.items()):
        description = described(offer.command.description)
        if name in taken:
            description = f"{description} (`/{name}` is `{taken[name]}` here)"
            name = f"{prompt_templates.EXTENSION_PREFIX}:{name}"
        yield workshop.TemplateOffer(name, KIND, description, offer.path, ORIGIN)
    for broken in loaded.broken:
        yield workshop.TemplateOffer(broken.name, KIND, f"cannot be used: {broken.reason}", broken.path, ORIGIN)
