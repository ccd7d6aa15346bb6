"""What the environment and the data folder say about logging in: the secret that signs access tokens, and the environment's
user. Nothing of it is in an error or a repr."""

import logging
import secrets
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from switchtower import config
from switchtower.core import registry
from switchtower.daemon import passwords, private_files

log = logging.getLogger(__name__)

MIN_SECRET_BYTES = 16
_SECRET_FILE = "jwt.secret"  # noqa: S105 - a name
OWNER = "owner"
"""Who comes with the owner's token. No user can be called so."""


class EnvironmentUser(Struct, frozen=True):
    """May log in as long as the environment says so. Never stored."""

    name: str
    password_hash: str

    def __repr__(self) -> str:
        return f"EnvironmentUser(name={self.name!r})"


def is_reserved(name: str) -> bool:
    return name.lower() == OWNER


def check_credentials(data_dir: Path, environ: Mapping[str, str]) -> None:
    """Raises `ConfigError` for what would fail only when a client logs in. Makes nothing."""
    if environ.get("JWT_SECRET") or (data_dir / _SECRET_FILE).exists():
        load_jwt_secret(data_dir, environ)
    read_environment_user(environ)


def load_jwt_secret(data_dir: Path, environ: Mapping[str, str]) -> bytes:
    """The environment's, or one that is made once."""
    if given := environ.get("JWT_SECRET"):
        secret = given.encode(errors="surrogateescape")
        if len(secret) < MIN_SECRET_BYTES:
            raise config.ConfigError(
                "JWT_SECRET",
                "the environment",
                f"is shorter than {MIN_SECRET_BYTES} bytes",
                hint="set a longer one, or none: then one is made and kept",
            )
        return secret
    path = data_dir / _SECRET_FILE
    kept = private_files.read_or_create_private(path, lambda: secrets.token_urlsafe(32)).encode()
    if len(kept) < MIN_SECRET_BYTES:
        raise config.ConfigError(
            "jwt.secret", f"`{path}`", f"is shorter than {MIN_SECRET_BYTES} bytes", hint="remove the file: a new one is made"
        )
    return kept


def read_environment_user(environ: Mapping[str, str]) -> EnvironmentUser | None:
    """Relay's `ADMIN_USERNAME` and `ADMIN_PASSWORD_HASH`, when both are set."""
    name, password_hash = environ.get("ADMIN_USERNAME"), environ.get("ADMIN_PASSWORD_HASH")
    if not name or not password_hash:
        if name or password_hash:
            log.warning("ADMIN_USERNAME and ADMIN_PASSWORD_HASH count only together, and one of them is not set")
        return None
    if not registry.is_user_name(name) or is_reserved(name):
        raise config.ConfigError(
            "ADMIN_USERNAME",
            "the environment",
            "cannot be a user's name",
            hint=f"use 1 to 64 letters, digits or `.` `_` `@` `-`, and not `{OWNER}`",
        )
    if not passwords.is_hash(password_hash):
        raise config.ConfigError(
            "ADMIN_PASSWORD_HASH", "the environment", "is not an argon2 hash", hint="make one with `tower user hash`"
        )
    return EnvironmentUser(name, password_hash)
