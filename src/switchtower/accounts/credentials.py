"""Access tokens as JWTs, signed with HS256 and nothing else, and the credentials of the environment and the data folder: the
secret that signs access tokens, and the environment's user.

Whether a token was revoked is not known here. No secret is in an error or a repr.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from switchtower.accounts import passwords
from switchtower.core.ports import registry
from switchtower.settings.sources import ConfigError
from switchtower.tools import atomic_write

_ALGORITHM = "HS256"
_KEY_BYTES = 32
# The times are checked here, by the clock that is passed in.
_OPTIONS = {
    "require": ["sub", "jti", "iat", "exp"],
    **dict.fromkeys(("verify_exp", "verify_iat", "verify_nbf", "verify_aud", "verify_iss"), False),
}


class TokenClaims(Struct, frozen=True):
    sub: str
    jti: str
    iat: int
    exp: int


class AccessTokens:
    def __init__(self, secret: bytes) -> None:
        # HMAC pads a short key with zeros anyway; the library warns about unpadded ones.
        self._key = secret.ljust(_KEY_BYTES, b"\0")
        self._jwt: ModuleType | None = None

    async def encode(self, claims: TokenClaims) -> str:
        jwt: Any = await self._get_jwt_module()
        carried = {"sub": claims.sub, "jti": claims.jti, "iat": claims.iat, "exp": claims.exp}
        return str(jwt.encode(carried, self._key, algorithm=_ALGORITHM))

    async def decode(self, token: str, now: float) -> TokenClaims | None:
        """Returns None for a token that we did not sign, or that has expired."""
        jwt: Any = await self._get_jwt_module()
        try:
            carried = jwt.decode(token, self._key, algorithms=[_ALGORITHM], options=_OPTIONS)
        except Exception:  # any failure of the decoder means that the text is not one of our tokens
            return None
        match carried:
            case {"sub": str(sub), "jti": str(jti), "iat": int(iat), "exp": int(exp)} if exp > now:
                return TokenClaims(sub, jti, iat, exp)
        return None

    async def _get_jwt_module(self) -> ModuleType:
        if self._jwt is None:
            self._jwt = await asyncio.to_thread(_import_jwt)
        return self._jwt


def _import_jwt() -> ModuleType:
    """The import takes a fifth of a second: too long for the event loop."""
    import jwt

    return jwt


log = logging.getLogger(__name__)

MIN_SECRET_BYTES = 16
_SECRET_FILE = "jwt.secret"  # noqa: S105 - a name
OWNER = "owner"
"""The name of a client with the owner's token. No user can have this name."""


class EnvironmentUser(Struct, frozen=True):
    """A user who may log in as long as the environment names it. It is never stored."""

    name: str
    password_hash: str

    def __repr__(self) -> str:
        return f"EnvironmentUser(name={self.name!r})"


def is_reserved(name: str) -> bool:
    return name.lower() == OWNER


def check_credentials(data_dir: Path, environ: Mapping[str, str]) -> None:
    """Raises `ConfigError` for a problem that would otherwise appear only when a client logs in. It creates nothing."""
    if environ.get("JWT_SECRET") or (data_dir / _SECRET_FILE).exists():
        load_jwt_secret(data_dir, environ)
    read_environment_user(environ)


def load_jwt_secret(data_dir: Path, environ: Mapping[str, str]) -> bytes:
    """Returns the environment's secret, or one that is made once."""
    if given := environ.get("JWT_SECRET"):
        secret = given.encode(errors="surrogateescape")
        if len(secret) < MIN_SECRET_BYTES:
            raise ConfigError(
                "JWT_SECRET",
                "the environment",
                f"is shorter than {MIN_SECRET_BYTES} bytes",
                hint="set a longer one, or none: then one is made and kept",
            )
        return secret
    path = data_dir / _SECRET_FILE
    kept = atomic_write.read_or_create_private(path, lambda: secrets.token_urlsafe(32)).encode()
    if len(kept) < MIN_SECRET_BYTES:
        raise ConfigError(
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
        raise ConfigError(
            "ADMIN_USERNAME",
            "the environment",
            "cannot be a user's name",
            hint=f"use 1 to 64 letters, digits or `.` `_` `@` `-`, and not `{OWNER}`",
        )
    if not passwords.is_hash(password_hash):
        raise ConfigError(
            "ADMIN_PASSWORD_HASH", "the environment", "is not an argon2 hash", hint="make one with `tower user hash`"
        )
    return EnvironmentUser(name, password_hash)
