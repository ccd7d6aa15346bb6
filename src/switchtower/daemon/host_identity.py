"""Who this machine is to hubs: an id and a token, made once and kept for the owner's eyes. The environment's words go first."""

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from switchtower import config
from switchtower.daemon import private_files

MAX_ID_LENGTH = 128


class HostIdentity(Struct, frozen=True):
    host_id: str
    host_token: str

    def __repr__(self) -> str:
        return f"HostIdentity(host_id={self.host_id!r})"


def load_host_identity(settings: config.Settings, environ: Mapping[str, str] = os.environ) -> HostIdentity:
    kept = _read_identity(settings.host_file)
    host_id = settings.host_id or kept.host_id
    if not host_id.strip():
        raise config.ConfigError("host_id", "the settings", "is blank", hint="choose another one, or none: then one is made")
    if len(host_id) > MAX_ID_LENGTH:
        raise config.ConfigError("host_id", "the settings", f"is longer than {MAX_ID_LENGTH}", hint="choose a shorter one")
    return HostIdentity(host_id, environ.get("HOST_TOKEN") or kept.host_token)


def rotate_host_token(settings: config.Settings) -> None:
    """A new token under the old id. The hub must be told to trust it: `tower hosts rotate`."""
    host_id = load_host_identity(settings, {}).host_id
    private_files.write_private(settings.host_file, msgspec.json.encode(HostIdentity(host_id, secrets.token_urlsafe(32))))


def get_host_name(settings: config.Settings) -> str:
    return settings.host_name or socket.gethostname().partition(".")[0] or "host"


def _read_identity(path: Path) -> HostIdentity:
    try:
        kept = msgspec.json.decode(private_files.read_or_create_private(path, _make_identity), type=HostIdentity)
        if kept.host_id and kept.host_token:
            return kept
        problem = "the id or the token is empty"
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        problem = str(broken)
    raise config.ConfigError("host.json", f"`{path}`", f"cannot be read: {problem}", hint="remove the file: a new one is made")


def _make_identity() -> str:
    made = HostIdentity(f"host_{secrets.token_hex(8)}", secrets.token_urlsafe(32))
    return msgspec.json.encode(made).decode()
