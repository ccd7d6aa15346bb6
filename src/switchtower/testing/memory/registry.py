"""The registry in memory: the same contract, for tests and experiments. Its content ends with the process.

Closing keeps the content, so opening the same object again looks like a restart.
"""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from switchtower.core import roles
from switchtower.core.ports import journal, registry


class MemoryRegistry:
    """Implements `registry.Registry`. No method awaits inside a change, so each is atomic."""

    def __init__(self) -> None:
        self._users: dict[str, registry.User] = {}
        self._tokens: dict[str, registry.Token] = {}
        self._hosts: dict[str, registry.Host] = {}
        self._hubs: dict[str, int] = {}
        self._marks: dict[str, dict[str, tuple[int, int]]] = {}
        self._notes: list[journal.AuditNote] = []
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def _check_open(self) -> None:
        if not self._is_open:
            raise registry.RegistryUnavailable("it is not open")
        await asyncio.sleep(0)  # a disk takes a moment too, and callers must expect that other tasks run meanwhile

    async def add_user(self, user: registry.User, *, note: journal.AuditNote | None = None) -> bool:
        await self._check_open()
        return self._add_note(note, made=self._users.setdefault(user.name, user) is user)

    def _add_note(self, note: journal.AuditNote | None, *, made: bool) -> bool:
        if made and note is not None:
            self._notes.append(note)
        return made

    def _check_not_last(self, name: str) -> None:
        if {user.name for user in self._users.values() if user.role is roles.Role.ADMIN} == {name}:
            raise registry.LastAdmin

    async def find_user(self, name: str) -> registry.User | None:
        await self._check_open()
        return self._users.get(name)

    async def list_users(self) -> list[registry.User]:
        await self._check_open()
        return sorted(self._users.values(), key=lambda user: user.name)

    async def set_role(
        self, name: str, role: roles.Role, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        await self._check_open()
        if keep_admin and role is not roles.Role.ADMIN:
            self._check_not_last(name)
        if (user := self._users.get(name)) is None:
            return False
        self._users[name] = structs.replace(user, role=role)
        return self._add_note(note, made=True)

    async def set_password(self, name: str, password_hash: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        await self._check_open()
        if (user := self._users.get(name)) is None:
            return False
        self._users[name] = structs.replace(user, password_hash=password_hash)
        self._revoke_all(name, now_ms)
        return self._add_note(note, made=True)

    async def replace_hash(self, name: str, old_hash: str, new_hash: str) -> bool:
        await self._check_open()
        user = self._users.get(name)
        if user is None or user.password_hash != old_hash:
            return False
        self._users[name] = structs.replace(user, password_hash=new_hash)
        return True

    async def remove_user(
        self, name: str, now_ms: int, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        await self._check_open()
        if keep_admin:
            self._check_not_last(name)
        if self._users.pop(name, None) is None:
            return False
        self._revoke_all(name, now_ms)
        return self._add_note(note, made=True)

    async def add_token(
        self, token: registry.Token, *, checked_hash: str | None = None, note: journal.AuditNote | None = None
    ) -> bool:
        await self._check_open()
        if checked_hash is not None:
            user = self._users.get(token.user)
            if user is None or user.password_hash != checked_hash:
                return False
            self._users[user.name] = structs.replace(user, last_login_at_ms=token.created_at_ms)
        self._tokens[token.token_id] = token
        return self._add_note(note, made=True)

    async def find_token(self, token_id: str) -> registry.Token | None:
        await self._check_open()
        return self._tokens.get(token_id)

    async def list_tokens(self, now_ms: int, *, limit: int, user: str | None = None) -> list[registry.Token]:
        await self._check_open()
        good = [token for token in self._tokens.values() if _is_valid(token, now_ms) and user in (None, token.user)]
        return sorted(good, key=lambda token: (token.created_at_ms, token.token_id), reverse=True)[:limit]

    async def use_token(self, token_id: str, now_ms: int) -> None:
        await self._check_open()
        if (token := self._tokens.get(token_id)) is not None:
            self._tokens[token_id] = structs.replace(token, last_used_ms=max(token.last_used_ms or 0, now_ms))

    async def revoke_token(self, token_id: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        await self._check_open()
        token = self._tokens.get(token_id)
        if token is None or not _is_valid(token, now_ms):
            return False
        self._tokens[token_id] = structs.replace(token, revoked_at_ms=now_ms)
        return self._add_note(note, made=True)

    async def revoke_tokens(self, user: str, now_ms: int) -> int:
        await self._check_open()
        return self._revoke_all(user, now_ms)

    def _revoke_all(self, user: str, now_ms: int) -> int:
        good = [token for token in self._tokens.values() if token.user == user and _is_valid(token, now_ms)]
        for token in good:
            self._tokens[token.token_id] = structs.replace(token, revoked_at_ms=now_ms)
        return len(good)

    async def prune_tokens(self, now_ms: int) -> int:
        await self._check_open()
        expired = [token_id for token_id, token in self._tokens.items() if token.expires_at_ms <= now_ms]
        for token_id in expired:
            del self._tokens[token_id]
        return len(expired)

    async def record_contact(
        self, visit: registry.HostContact, *, first_state: registry.HostState, most: int
    ) -> registry.Host | None:
        await self._check_open()
        host = self._hosts.get(visit.host_id)
        if host is None:
            if len(self._hosts) >= most:
                pending = [host for host in self._hosts.values() if host.state is registry.HostState.PENDING]
                if not pending:
                    return None
                del self._hosts[min(pending, key=lambda host: (host.last_seen_ms, host.host_id)).host_id]
            host = registry.Host(
                host_id=visit.host_id,
                name=visit.name or visit.host_id,
                state=first_state,
                first_seen_ms=visit.at_ms,
                last_seen_ms=visit.at_ms,
                address=visit.address,
                token_sha256=visit.token_sha256,
            )
        elif host.token_sha256 in (None, visit.token_sha256):
            last_seen_ms = max(host.last_seen_ms, visit.at_ms)
            host = structs.replace(host, token_sha256=visit.token_sha256, last_seen_ms=last_seen_ms)
        self._hosts[visit.host_id] = host
        return host

    async def touch_host(self, host_id: str, now_ms: int) -> bool:
        host = await self.find_host(host_id)
        return self._store_host(host and structs.replace(host, last_seen_ms=max(host.last_seen_ms, now_ms)))

    async def find_host(self, host_id: str) -> registry.Host | None:
        await self._check_open()
        return self._hosts.get(host_id)

    async def list_hosts(self) -> list[registry.Host]:
        await self._check_open()
        return sorted(self._hosts.values(), key=lambda host: (host.first_seen_ms, host.host_id))

    async def set_host_state(self, host_id: str, state: registry.HostState, *, note: journal.AuditNote | None = None) -> bool:
        host = await self.find_host(host_id)
        return self._store_host(host and structs.replace(host, state=state), note)

    async def rename_host(self, host_id: str, name: str, *, note: journal.AuditNote | None = None) -> bool:
        host = await self.find_host(host_id)
        return self._store_host(host and structs.replace(host, name=name), note)

    async def forget_host_token(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool:
        host = await self.find_host(host_id)
        return self._store_host(host and structs.replace(host, token_sha256=None), note)

    async def remove_host(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool:
        await self._check_open()
        return self._add_note(note, made=self._hosts.pop(host_id, None) is not None)

    async def record_note(self, note: journal.AuditNote) -> None:
        await self._check_open()
        self._notes.append(note)

    async def list_notes(self, limit: int, *, before: int | None = None) -> list[tuple[int, journal.AuditNote]]:
        await self._check_open()
        numbered = list(enumerate(self._notes, 1))
        return [(number, note) for number, note in reversed(numbered) if before is None or number < before][:limit]

    def _store_host(self, host: registry.Host | None, note: journal.AuditNote | None = None) -> bool:
        if host is not None:
            self._hosts[host.host_id] = host
        return self._add_note(note, made=host is not None)

    async def record_hub(self, hub: str, now_ms: int) -> int:
        await self._check_open()
        return self._hubs.setdefault(hub, now_ms)

    async def load_acknowledgements(self, hub: str) -> dict[str, tuple[int, int]]:
        await self._check_open()
        return dict(self._marks.get(hub, {}))

    async def store_acknowledgements(self, hub: str, marks: Sequence[tuple[str, int, int]]) -> None:
        await self._check_open()
        self._marks.setdefault(hub, {}).update({session_id: (acked, settled) for session_id, acked, settled in marks})


def _is_valid(token: registry.Token, now_ms: int) -> bool:
    return token.revoked_at_ms is None and token.expires_at_ms > now_ms
