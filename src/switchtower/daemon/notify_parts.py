"""Notifications as the daemon's other parts see them: made from the settings, and loaded only where somebody wants them."""

from typing import TYPE_CHECKING

from switchtower import config
from switchtower.core import redact
from switchtower.runtime.runtime import Runtime

if TYPE_CHECKING:
    from switchtower.daemon.notify import NotificationChannel, Notifier
    from switchtower.daemon.notify_push import WebPushChannel
    from switchtower.daemon.notify_shelf import SubscriptionStore


def make_web_push(settings: config.Settings, shared: "SubscriptionStore | None" = None) -> "WebPushChannel | None":
    """None where nobody wants it. `shared` is where several nodes keep what belongs to all. Raises `ConfigError`."""
    if not settings.web_push:
        return None
    from switchtower.daemon import notify_push, notify_shelf

    notify_push.check_installed()
    shelf = shared or notify_shelf.FolderSubscriptionStore(settings.data_dir)
    return notify_push.WebPushChannel(shelf, contact=settings.web_push_contact or settings.public_url)


def make_notifier(
    settings: config.Settings, runtime: Runtime, redactor: redact.Redactor, push: "WebPushChannel | None"
) -> "Notifier | None":
    """It watches from now on. None where there is nobody to be told."""
    if not settings.notify_webhook and push is None:
        return None
    from switchtower.daemon import notify, notify_webhook

    for url in settings.notify_webhook:
        redactor.add_secret(url)
    channels: list[NotificationChannel] = [
        notify_webhook.WebhookChannel(url, settings.notify_format) for url in settings.notify_webhook
    ]
    if push is not None:
        channels.append(push)
    made = notify.Notifier(
        channels, settings.notify_events, public_url=settings.public_url, clean=redactor.redact_text, now_ms=runtime.now_ms
    )
    runtime.watch(made.on_event, owned_only=True)
    return made
