"""Who may log in, and who somebody with a token is. Every token that was given out is in the registry, where it can be revoked.

Nothing is remembered here but how often a login failed: several nodes may share the registry. Passwords, tokens and hashes are
in no error, no repr and no log.
"""

import contextlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import Struct

from switchtower.core import ids, registry
from switchtower.daemon import passwords
from switchtower.daemon.access_tokens import AccessTokens, Claims
from switchtower.daemon.credentials import OWNER, EnvironmentUser, is_reserved
from switchtower.daemon.login_limit import LoginLimit, TooManyAttempts
from switchtower.daemon.passwords import Passwords

TOKEN_LIFETIME_S = 86_400
LONGEST_TOKEN = 8_192
LONGEST_LABEL = 200
MOST_LISTED = 1_000
_CHECKS = 3
"""How often a login is checked again because the stored hash changed meanwhile."""


class AccountError(Exception):
    """Something was refused: why, and what to do."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{message}; hint: {hint}" if hint else message)
        self.message = message
        self.hint = hint


class InvalidCredentials(AccountError):
    """Relay's own words. They do not say whether there is such a user."""

    def __init__(self) -> None:
        super().__init__("invalid credentials")


class UserExists(AccountError): ...


class NoSuchUser(AccountError): ...


class Unusable(AccountError):
    """A name or a password that nobody can have."""


class Identity(Struct, frozen=True):
    name: str
    via: Literal["owner_token", "access_token"]
    token_id: str | None = None
    """Of the access token, to revoke it by."""
    expires_at_ms: int | None = None
    """Of the access token; the owner's has no end."""


class _Credential(NamedTuple):
    hashed: str
    is_stored: bool


class Accounts:
    def __init__(
        self,
        store: registry.Registry,
        jwt_secret: bytes,
        owner_token: str,
        now: Callable[[], float] = time.time,
        *,
        environment_user: EnvironmentUser | None = None,
        cost: passwords.Cost | None = None,
        redeem: Callable[[str], bool] = lambda token: False,
    ) -> None:
        """`redeem` says whether a token is good for one visit of the owner, and uses it up."""
        if not owner_token or not jwt_secret:
            raise ValueError("an empty secret would let everybody in")
        self._registry = store
        self._owner_token = owner_token.encode()
        self._now = now
        self._environment_user = environment_user
        self._redeem = redeem
        self._tokens = AccessTokens(jwt_secret)
        self._passwords = Passwords(cost)
        self._limit = LoginLimit(now)

    def close(self) -> None:
        self._passwords.close()

    # Coming in

    async def login(self, username: str, password: str, address: str, *, client: str = "") -> str:
        """An access token. Raises `InvalidCredentials` or `TooManyAttempts`."""
        # No work and no row for what is nobody's; the rules for names are no secret.
        if not registry.is_user_name(username) or not passwords.can_be_checked(password):
            raise InvalidCredentials
        attempt = self._limit.begin(username, address)
        succeeded: bool | None = False  # also for one who leaves before the answer
        try:
            token = await self._checked_login(username, password, client)
            succeeded = token is not None
        except passwords.Busy:
            succeeded = None
            raise TooManyAttempts(1) from None
        except registry.RegistryUnavailable:
            succeeded = None
            raise
        finally:
            self._limit.end(attempt, succeeded=succeeded)
        if token is None:
            raise InvalidCredentials
        return token

    async def _checked_login(self, name: str, password: str, client: str) -> str | None:
        for _ in range(_CHECKS):
            credential = await self._credential(name)
            if not await self._passwords.check(password, credential.hashed if credential else None) or credential is None:
                return None
            if not credential.is_stored:
                return await self._issue(name, client)
            if token := await self._issue(name, client, checked_hash=credential.hashed):
                await self._refresh(name, password, credential.hashed)
                return token
            # Changed, removed or hashed anew while it was being checked: what is stored now decides.
        return None

    async def _credential(self, name: str) -> _Credential | None:
        if (of_environment := self._environment_user) is not None and name == of_environment.name:
            return _Credential(of_environment.password_hash, is_stored=False)
        user = await self._registry.user(name)
        return _Credential(user.password_hash, is_stored=True) if user is not None else None

    async def _refresh(self, name: str, password: str, old_hash: str) -> None:
        """A hash made at another cost is made anew. It can wait for the next login."""
        with contextlib.suppress(passwords.Busy, registry.RegistryUnavailable):
            if await self._passwords.is_outdated(old_hash):
                await self._registry.rehash(name, old_hash, await self._passwords.hash(password))

    async def _issue(self, name: str, client: str, *, checked_hash: str | None = None) -> str | None:
        issued_at = int(self._now())
        now_ms = self._now_ms()
        token_id = ids.spell("tok", now_ms, secrets.randbits(80))
        expires_at = issued_at + TOKEN_LIFETIME_S
        await self._registry.prune_tokens(now_ms)
        stored = registry.Token(token_id, name, now_ms, expires_at * 1_000, client[:LONGEST_LABEL])
        if not await self._registry.add_token(stored, checked_hash=checked_hash):
            return None
        return await self._tokens.make(Claims(sub=name, jti=token_id, iat=issued_at, exp=expires_at))

    async def exchange(self, first_token: str, *, client: str = "page") -> str:
        """The owner's token, or that of one visit, for an access token. Raises `InvalidCredentials`."""
        if len(first_token) > LONGEST_TOKEN or not (self._is_owner_token(first_token) or self._redeem(first_token)):
            raise InvalidCredentials
        token = await self._issue(OWNER, client)
        assert token is not None, "only a checked hash can be outrun"
        return token

    async def verify(self, token: str) -> Identity | None:
        """Whose token it is; None for anything else, whatever it is."""
        if len(token) > LONGEST_TOKEN or not token.isascii():
            return None
        if self._is_owner_token(token):
            return Identity(OWNER, "owner_token")
        claims = await self._tokens.read(token, self._now())
        if claims is None:
            return None
        stored = await self._registry.token(claims.jti)
        if stored is None or stored.user != claims.sub or stored.revoked_at_ms is not None:
            return None
        if stored.expires_at_ms <= self._now_ms() or not await self.knows(stored.user):
            return None
        return Identity(stored.user, "access_token", stored.token_id, stored.expires_at_ms)

    def _is_owner_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self._owner_token)

    async def knows(self, name: str) -> bool:
        """Whether there is such a user now."""
        return name == OWNER or await self._credential(name) is not None

    # Tokens

    async def tokens(self, user: str | None = None) -> list[registry.Token]:
        """Those that are good, the newest first."""
        return await self._registry.tokens(self._now_ms(), limit=MOST_LISTED, user=user)

    async def revoke(self, token_id: str) -> bool:
        """Whether it was good until now."""
        return await self._registry.revoke_token(token_id, self._now_ms())

    async def revoke_all(self, user: str) -> int:
        return await self._registry.revoke_tokens(user, self._now_ms())

    # Users

    async def users(self) -> list[registry.User]:
        return await self._registry.users()

    async def add(self, name: str, password: str) -> None:
        """Raises `Unusable`, `UserExists`, `passwords.Busy`."""
        if not registry.is_user_name(name):
            raise Unusable("this cannot be a user's name", hint="use 1 to 64 letters, digits or `.` `_` `@` `-`")
        if is_reserved(name):
            raise Unusable(f"`{name}` is the owner, who has no password", hint="choose another name")
        self._refuse_environment_user(name)
        _check_usable(password)
        exists = UserExists(f"there is a user `{name}` already", hint=f"change the password with `tower user passwd {name}`")
        if await self._registry.user(name) is not None:
            raise exists
        user = registry.User(name, await self._passwords.hash(password), self._now_ms())
        if not await self._registry.add_user(user):
            raise exists

    async def set_password(self, name: str, password: str) -> None:
        """Revokes the user's tokens. Raises `Unusable`, `NoSuchUser`, `passwords.Busy`."""
        self._refuse_environment_user(name)
        _check_usable(password)
        if await self._registry.user(name) is None:
            raise _no_such(name)
        if not await self._registry.set_password(name, await self._passwords.hash(password), self._now_ms()):
            raise _no_such(name)

    async def remove(self, name: str) -> None:
        """Revokes the user's tokens. Raises `NoSuchUser`."""
        if not await self._registry.remove_user(name, self._now_ms()):
            self._refuse_environment_user(name)
            raise _no_such(name)

    def _refuse_environment_user(self, name: str) -> None:
        if self._environment_user is not None and name == self._environment_user.name:
            raise Unusable(
                f"`{name}` is the environment's user", hint="change `ADMIN_USERNAME` and `ADMIN_PASSWORD_HASH`, then restart"
            )

    def _now_ms(self) -> int:
        return int(self._now() * 1_000)


def _check_usable(password: str) -> None:
    if problem := passwords.problem_with(password):
        raise Unusable(problem, hint="choose another one")


def _no_such(name: str) -> NoSuchUser:
    return NoSuchUser(f"there is no user `{name[:64]}`", hint="`tower user list` shows them")
