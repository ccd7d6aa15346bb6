"""Users, logins and tokens. Every token that was issued is in the registry, where it can be revoked.

Only the counts of failed logins are kept in memory: several nodes may share the registry. Passwords, tokens and hashes are in no
error, no repr and no log.
"""

import contextlib
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import Struct

from switchtower.accounts import passwords
from switchtower.accounts.credentials import OWNER, AccessTokens, EnvironmentUser, TokenClaims, is_reserved
from switchtower.accounts.login_limit import LoginLimit, TooManyAttempts
from switchtower.accounts.passwords import PasswordHasher
from switchtower.core import events, ids, roles
from switchtower.core.ports import journal, registry

TOKEN_LIFETIME_S = 86_400
MAX_TOKEN_LENGTH = 8_192
MAX_LABEL_LENGTH = 200
MAX_LISTED = 1_000
MAX_TOKEN_NAME_LENGTH = 64
PROGRAM_TOKEN_DAYS, MAX_PROGRAM_TOKEN_DAYS = 30, 366
PROGRAM_TOKEN_PREFIX = "tower_"  # noqa: S105 - what such a token begins with
USE_RECORD_INTERVAL_MS = 60_000
DAY_MS = 86_400_000
_CHECKS = 3
"""Checks of one login, which is repeated when the stored hash changed meanwhile."""


class AccountError(Exception):
    """A request was refused; the error has the cause and the remedy."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{message}; hint: {hint}" if hint else message)
        self.message = message
        self.hint = hint


class InvalidCredentials(AccountError):
    """The text is relay's own. It does not reveal whether the user exists."""

    def __init__(self) -> None:
        super().__init__("invalid credentials")


class UserExists(AccountError): ...


class NoSuchUser(AccountError): ...


class LastAdminRequired(AccountError):
    """A user may not take the last admin's role away; the owner may."""


class InvalidAccount(AccountError):
    """The name or the password is not allowed."""


class UserIdentity(Struct, frozen=True):
    name: str
    via: Literal["owner_token", "access_token"]
    token_id: str | None = None
    """The id of the access token, by which it can be revoked."""
    expires_at_ms: int | None = None
    """The end of the access token; the owner's has none."""
    role: roles.Role = roles.Role.VIEWER
    token_name: str = ""
    """The name of a token that was made for a program."""

    def describe_device(self, user_agent: str) -> str:
        """Returns the token's name and the client's user agent, for the audit."""
        return ", ".join(part for part in (self.token_name, user_agent) if part)


class _StoredCredential(NamedTuple):
    hashed: str
    is_stored: bool
    role: roles.Role


class Accounts:
    def __init__(
        self,
        store: registry.Registry,
        jwt_secret: bytes,
        owner_token: str,
        now: Callable[[], float] = time.time,
        *,
        environment_user: EnvironmentUser | None = None,
        cost: passwords.HashCost | None = None,
        redeem: Callable[[str], bool] = lambda token: False,
    ) -> None:
        """`redeem` returns whether a token is valid for one visit of the owner, and invalidates it."""
        if not owner_token or not jwt_secret:
            raise ValueError("an empty secret would let everybody in")
        self._registry = store
        self._owner_token = owner_token.encode()
        self._now = now
        self._environment_user = environment_user
        self._redeem = redeem
        self._tokens = AccessTokens(jwt_secret)
        self._passwords = PasswordHasher(cost)
        self._limit = LoginLimit(now)
        self._device_key = hmac.new(jwt_secret, b"devices", "sha256").digest()
        self._watchers: set[Callable[[], None]] = set()
        self._uses: dict[str, int] = {}
        """Per token: the time of its last recorded use."""

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls `changed` after each change of users, roles or tokens that is made here. Returns a function that stops it."""
        self._watchers.add(changed)
        return lambda: self._watchers.discard(changed)

    def _notify_watchers(self) -> None:
        for changed in tuple(self._watchers):
            changed()

    def close(self) -> None:
        self._passwords.close()

    # Logins

    async def login(self, username: str, password: str, address: str, *, client: str = "", device: str = "") -> str:
        """Returns an access token. `device` is the client's `make_device_token` of an earlier login. Raises `InvalidCredentials`
        or `TooManyAttempts`."""
        # An impossible name costs no work and no row; the rules for names are not secret.
        if not registry.is_user_name(username) or not passwords.can_be_checked(password):
            raise InvalidCredentials
        visitor = events.Actor(name=username, via="web", device=client[:MAX_LABEL_LENGTH] or None, address=address or None)
        try:
            attempt = self._limit.begin(username, address, device=device if self._is_known_device(username, device) else "")
        except TooManyAttempts:
            await self._record_refusal(visitor)
            raise
        succeeded: bool | None = False  # also for a client that disconnects before the answer
        try:
            token = await self._login(username, password, client, visitor)
            succeeded = token is not None
        except passwords.PasswordHasherBusy:
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

    async def _record_refusal(self, actor: events.Actor) -> None:
        """Records one refusal per name and address until the next try is allowed: refusals must not fill the disk."""
        key, now_ms = f"login {actor.name} {actor.address}", self._now_ms()
        if now_ms - self._uses.get(key, -USE_RECORD_INTERVAL_MS) < USE_RECORD_INTERVAL_MS:
            return
        self._remember_use(key, now_ms)
        with contextlib.suppress(registry.RegistryUnavailable):  # the login is refused in any case
            await self._registry.record_note(journal.AuditNote("login.limited", now_ms, actor, actor.name))

    async def _login(self, name: str, password: str, client: str, by: events.Actor) -> str | None:
        for _ in range(_CHECKS):
            credential = await self._find_credential(name)
            if not await self._passwords.check(password, credential.hashed if credential else None) or credential is None:
                return None
            if not credential.is_stored:
                return await self._issue(name, client, by)
            if token := await self._issue(name, client, by, checked_hash=credential.hashed):
                await self._rehash_if_outdated(name, password, credential.hashed)
                return token
            # The user was changed, removed or rehashed during the check: the stored state decides.
        return None

    async def _find_credential(self, name: str) -> _StoredCredential | None:
        if (of_environment := self._environment_user) is not None and name == of_environment.name:
            return _StoredCredential(of_environment.password_hash, is_stored=False, role=roles.Role.ADMIN)
        user = await self._registry.find_user(name)
        return _StoredCredential(user.password_hash, is_stored=True, role=user.role) if user is not None else None

    async def _rehash_if_outdated(self, name: str, password: str, old_hash: str) -> None:
        """Replaces a hash that was made at another cost. On failure the next login does it."""
        with contextlib.suppress(passwords.PasswordHasherBusy, registry.RegistryUnavailable):
            if await self._passwords.is_outdated(old_hash):
                await self._registry.replace_hash(name, old_hash, await self._passwords.hash(password))

    async def _issue(self, name: str, client: str, by: events.Actor, *, checked_hash: str | None = None) -> str | None:
        issued_at = int(self._now())
        now_ms = self._now_ms()
        token_id = ids.format_id("tok", now_ms, secrets.randbits(80))
        expires_at = issued_at + TOKEN_LIFETIME_S
        await self._registry.prune_tokens(now_ms)
        stored = registry.Token(token_id, name, now_ms, expires_at * 1_000, client[:MAX_LABEL_LENGTH])
        note = journal.AuditNote("login", now_ms, by, name, token_id)
        if not await self._registry.add_token(stored, checked_hash=checked_hash, note=note):
            return None
        return await self._tokens.encode(TokenClaims(sub=name, jti=token_id, iat=issued_at, exp=expires_at))

    def make_device_token(self, name: str) -> str:
        """Makes a token for a client that has logged in: it identifies the device at the next login. It admits no client."""
        nonce = secrets.token_hex(16)
        return f"{nonce}.{self._sign_device(name, nonce)}"

    def _is_known_device(self, name: str, device: str) -> bool:
        nonce, _, signature = device.partition(".")
        if len(nonce) != 32 or not device.isascii():
            return False
        return hmac.compare_digest(signature, self._sign_device(name, nonce))

    def _sign_device(self, name: str, nonce: str) -> str:
        return hmac.new(self._device_key, f"{name} {nonce}".encode(), "sha256").hexdigest()

    async def exchange_token(self, first_token: str, *, client: str = "page", address: str = "", counted: bool = False) -> str:
        """Exchanges the owner's token, or that of one visit, for an access token. Raises `InvalidCredentials`; if failures are
        `counted` for the address, also `TooManyAttempts`. A valid token is never delayed: none can be guessed."""
        if len(first_token) > MAX_TOKEN_LENGTH or not (self._is_owner_token(first_token) or self._redeem(first_token)):
            if counted:
                self._limit.end(self._limit.begin("", address), succeeded=False)
            raise InvalidCredentials
        by = events.Actor(name=OWNER, via="web", device=client[:MAX_LABEL_LENGTH] or None, address=address or None)
        token = await self._issue(OWNER, client, by)
        assert token is not None, "only a checked hash can be outrun"
        return token

    async def verify(self, token: str) -> UserIdentity | None:
        """Returns the user of a token; None for anything else, whatever it is."""
        if len(token) > MAX_TOKEN_LENGTH or not token.isascii():
            return None
        if self._is_owner_token(token):
            return UserIdentity(OWNER, "owner_token", role=roles.Role.ADMIN)
        stored = await self._find_token(token)
        if stored is None or stored.revoked_at_ms is not None or stored.expires_at_ms <= self._now_ms():
            return None
        role = await self._find_role(stored.user)
        if role is None:
            return None
        if stored.name:
            await self._record_use(stored)
        allowed = role if stored.scope is None else roles.choose_lower_role(role, stored.scope)
        return UserIdentity(stored.user, "access_token", stored.token_id, stored.expires_at_ms, allowed, stored.name)

    async def _find_token(self, token: str) -> registry.Token | None:
        """Returns the row of an authentic token, whether or not it is still valid."""
        if token.startswith(PROGRAM_TOKEN_PREFIX):
            token_id, _, secret = token.removeprefix(PROGRAM_TOKEN_PREFIX).partition(".")
            stored = await self._registry.find_token(token_id)
            expected = "" if stored is None else stored.secret_sha256 or ""
            return stored if expected and hmac.compare_digest(_hash_secret(secret), expected) else None
        claims = await self._tokens.decode(token, self._now())
        if claims is None:
            return None
        stored = await self._registry.find_token(claims.jti)
        is_login = stored is not None and stored.user == claims.sub and stored.secret_sha256 is None
        return stored if is_login else None

    async def _record_use(self, token: registry.Token) -> None:
        now_ms = self._now_ms()
        if now_ms - self._uses.get(token.token_id, token.last_used_ms or 0) >= USE_RECORD_INTERVAL_MS:
            self._remember_use(token.token_id, now_ms)
            with contextlib.suppress(registry.RegistryUnavailable):
                await self._registry.use_token(token.token_id, now_ms)

    def _remember_use(self, key: str, now_ms: int) -> None:
        if len(self._uses) >= MAX_LISTED:
            self._uses.clear()
        self._uses[key] = now_ms

    def _is_owner_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self._owner_token)

    async def has_user(self, name: str) -> bool:
        """Returns whether the user exists now."""
        return await self._find_role(name) is not None

    async def _find_role(self, name: str) -> roles.Role | None:
        """Returns the current role: the one at the time when a token was issued does not count. None: the user does not exist."""
        if name == OWNER:
            return roles.Role.ADMIN
        credential = await self._find_credential(name)
        return None if credential is None else credential.role

    # Tokens

    async def list_tokens(self, user: str | None = None) -> list[registry.Token]:
        """Lists the valid tokens, the newest first."""
        return await self._registry.list_tokens(self._now_ms(), limit=MAX_LISTED, user=user)

    async def create_token(
        self, name: str, user: str, scope: roles.Role | None, lifetime_ms: int | None, by: events.Actor
    ) -> tuple[str, registry.Token]:
        """Makes a token for a program, which is shown once. Raises `InvalidAccount`, `NoSuchUser`."""
        if not name or len(name) > MAX_TOKEN_NAME_LENGTH or not name.isprintable():
            raise InvalidAccount(
                "this cannot be a token's name", hint=f"use 1 to {MAX_TOKEN_NAME_LENGTH} characters that can be seen"
            )
        role = await self._find_role(user)
        if role is None:
            raise _make_no_such_user(user)
        if scope is not None and not role.covers(scope):
            raise InvalidAccount(
                f"`{user}` is {_format_role(role)}, and the token would be {_format_role(scope)}", hint=f"choose at most `{role}`"
            )
        lifetime_ms = PROGRAM_TOKEN_DAYS * DAY_MS if lifetime_ms is None else lifetime_ms
        if not 0 < lifetime_ms <= MAX_PROGRAM_TOKEN_DAYS * DAY_MS:
            raise InvalidAccount("a token cannot last so long", hint=f"choose at most {MAX_PROGRAM_TOKEN_DAYS} days")
        now_ms = self._now_ms()
        token_id, secret = ids.format_id("tok", now_ms, secrets.randbits(80)), secrets.token_urlsafe(32)
        token = registry.Token(
            *(token_id, user, now_ms, now_ms + lifetime_ms), name=name, scope=scope or role, secret_sha256=_hash_secret(secret)
        )
        await self._registry.prune_tokens(now_ms)
        detail = f"{name}: {token.scope}, for {lifetime_ms // 1_000} s"
        await self._registry.add_token(token, note=journal.AuditNote("token.created", now_ms, by, user, f"{token_id} {detail}"))
        return f"{PROGRAM_TOKEN_PREFIX}{token_id}.{secret}", token

    async def revoke_token(self, token_id: str, by: events.Actor) -> bool:
        """Returns whether the token was valid until now."""
        now_ms = self._now_ms()
        note = journal.AuditNote("token.revoked", now_ms, by, token_id)
        revoked = await self._registry.revoke_token(token_id, now_ms, note=note)
        self._notify_watchers()
        return revoked

    async def list_notes(self, limit: int, *, before: int | None = None) -> list[tuple[int, journal.AuditNote]]:
        """Lists the audit notes, the newest first."""
        return await self._registry.list_notes(limit, before=before)

    # Users

    async def list_users(self) -> list[registry.User]:
        return await self._registry.list_users()

    async def add_user(self, name: str, password: str, by: events.Actor, *, role: roles.Role = roles.NEW_USER) -> None:
        """Raises `InvalidAccount`, `UserExists`, `passwords.PasswordHasherBusy`."""
        if not registry.is_user_name(name):
            raise InvalidAccount("this cannot be a user's name", hint="use 1 to 64 letters, digits or `.` `_` `@` `-`")
        if is_reserved(name):
            raise InvalidAccount(f"`{name}` is the owner, who has no password", hint="choose another name")
        self._refuse_environment_user(name)
        _check_usable(password)
        exists = UserExists(f"there is a user `{name}` already", hint=f"change the password with `tower user passwd {name}`")
        if await self._registry.find_user(name) is not None:
            raise exists
        user = registry.User(name, await self._passwords.hash(password), self._now_ms(), role=role)
        note = journal.AuditNote("user.added", user.created_at_ms, by, name, role)
        if not await self._registry.add_user(user, note=note):
            raise exists

    async def set_role(self, name: str, role: roles.Role, by: events.Actor) -> None:
        """Takes effect at once, even for the user's open connections. Raises `NoSuchUser`, `LastAdminRequired`,
        `InvalidAccount`."""
        self._refuse_environment_user(name)
        note = journal.AuditNote("user.role", self._now_ms(), by, name, role)
        try:
            known = await self._registry.set_role(name, role, keep_admin=self._is_permanent_admin(by), note=note)
        except registry.LastAdmin:
            raise _make_last_admin_error(name) from None
        self._notify_watchers()
        if not known:
            raise _make_no_such_user(name)

    def _is_permanent_admin(self, by: events.Actor) -> bool:
        """The owner and the environment's user are admins that no action here can remove."""
        return by.name != OWNER and self._environment_user is None

    async def set_password(self, name: str, password: str, by: events.Actor) -> None:
        """Revokes the user's tokens. Raises `InvalidAccount`, `NoSuchUser`, `passwords.PasswordHasherBusy`."""
        self._refuse_environment_user(name)
        _check_usable(password)
        if await self._registry.find_user(name) is None:
            raise _make_no_such_user(name)
        hashed, now_ms = await self._passwords.hash(password), self._now_ms()
        known = await self._registry.set_password(name, hashed, now_ms, note=journal.AuditNote("user.password", now_ms, by, name))
        self._notify_watchers()
        if not known:
            raise _make_no_such_user(name)

    async def remove_user(self, name: str, by: events.Actor) -> None:
        """Revokes the user's tokens. Raises `NoSuchUser`, `LastAdminRequired`."""
        now_ms = self._now_ms()
        note = journal.AuditNote("user.removed", now_ms, by, name)
        try:
            removed = await self._registry.remove_user(name, now_ms, keep_admin=self._is_permanent_admin(by), note=note)
        except registry.LastAdmin:
            raise _make_last_admin_error(name) from None
        self._notify_watchers()
        if not removed:
            self._refuse_environment_user(name)
            raise _make_no_such_user(name)

    def _refuse_environment_user(self, name: str) -> None:
        if self._environment_user is not None and name == self._environment_user.name:
            raise InvalidAccount(
                f"`{name}` is the environment's user", hint="change `ADMIN_USERNAME` and `ADMIN_PASSWORD_HASH`, then restart"
            )

    def _now_ms(self) -> int:
        return int(self._now() * 1_000)


def _check_usable(password: str) -> None:
    if problem := passwords.find_password_problem(password):
        raise InvalidAccount(problem, hint="choose another one")


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _format_role(role: roles.Role) -> str:
    return f"{'a' if role is roles.Role.VIEWER else 'an'} {role}"


def _make_last_admin_error(name: str) -> LastAdminRequired:
    return LastAdminRequired(f"`{name}` is the last admin", hint="make another user an admin first")


def _make_no_such_user(name: str) -> NoSuchUser:
    return NoSuchUser(f"there is no user `{name[:64]}`", hint="`tower user list` shows them")
