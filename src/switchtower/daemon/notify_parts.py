"""Notifications as the daemon's other parts see them: made from the settings, and loaded only where somebody wants them."""

from typing import TYPE_CHECKING

from switchtower import config
from switchtower.core import redact
from switchtower.runtime.runtime import Runtime

if TYPE_CHECKING:
    from switchtower.daemon.notify import Channel, Notifier
    from switchtower.daemon.notify_push import WebPush


def web_push(settings: config.Settings) -> "WebPush | None":
    """None where nobody wants it. Raises `ConfigError`."""
    if not settings.web_push:
        return None
    from switchtower.daemon import notify_push

    notify_push.check_installed()
    return notify_push.WebPush(settings.data_dir, contact=settings.web_push_contact or settings.public_url)


def notifier(settings: config.Settings, runtime: Runtime, redactor: redact.Redactor, push: "WebPush | None") -> "Notifier | None":
    """It watches from now on. None where there is nobody to be told."""
    if not settings.notify_webhook and push is None:
        return None
    from switchtower.daemon import notify, notify_webhook

    for url in settings.notify_webhook:
        redactor.add(url)
    channels: list[Channel] = [notify_webhook.Webhook(url, settings.notify_format) for url in settings.notify_webhook]
    if push is not None:
        channels.append(push)
    made = notify.Notifier(
        channels, settings.notify_events, public_url=settings.public_url, clean=redactor.text, now_ms=runtime.now_ms
    )
    runtime.watch(made.saw, at_home=True)
    return made
