"""Wire values as our own."""

from switchtower.core import events
from switchtower.protocols.pi import messages


def convert_images(sent: list[messages.Image] | None) -> tuple[events.Image, ...]:
    return tuple(events.Image(image.mimeType, image.data) for image in sent or ())
