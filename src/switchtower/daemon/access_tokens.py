"""Access tokens as clients carry them: JWTs, signed with HS256 and nothing else. Whether one was revoked is not known here."""

import asyncio
from types import ModuleType
from typing import Any

from msgspec import Struct

_ALGORITHM = "HS256"
_KEY_BYTES = 32
# The times are judged here, by the clock that was handed in.
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
        # HMAC fills a short key with zeros anyway; the library warns of those that come unfilled.
        self._key = secret.ljust(_KEY_BYTES, b"\0")
        self._jwt: ModuleType | None = None

    async def encode(self, claims: TokenClaims) -> str:
        jwt: Any = await self._get_jwt_module()
        carried = {"sub": claims.sub, "jti": claims.jti, "iat": claims.iat, "exp": claims.exp}
        return str(jwt.encode(carried, self._key, algorithm=_ALGORITHM))

    async def decode(self, token: str, now: float) -> TokenClaims | None:
        """None for anything that we did not sign, or that is past its time."""
        jwt: Any = await self._get_jwt_module()
        try:
            carried = jwt.decode(token, self._key, algorithms=[_ALGORITHM], options=_OPTIONS)
        except Exception:  # whatever a stranger's text makes a decoder stumble over, it is no token of ours
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
    """A fifth of a second: too long for the event loop."""
    import jwt

    return jwt
