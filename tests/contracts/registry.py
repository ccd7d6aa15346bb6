"""What every registry must do, as tests. A store's own test file subclasses `RegistryContract` and says how to make one.

    class TestMyRegistry(RegistryContract):
        @pytest.fixture
        def make_registry(self, tmp_path):
            return lambda: MyRegistry(tmp_path / "registry")

The tests are coroutines: run them with pytest-asyncio's `asyncio_mode = "auto"`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec import structs

from switchtower.core import events
from switchtower.core.ports import journal, registry
from switchtower.core.ports.registry import HostState
from switchtower.core.roles import Role

NOON = 1_760_000_000_000
MakeRegistry = Callable[[], registry.Registry]


def make_user(name: str = "ann", hashed: str = "$argon2id$one") -> registry.User:
    return registry.User(name=name, password_hash=hashed, created_at_ms=NOON)


def make_token(
    token_id: str, owner: str = "ann", *, created_at_ms: int = NOON, expires_at_ms: int = NOON + 1_000
) -> registry.Token:
    return registry.Token(token_id, owner, created_at_ms, expires_at_ms, client="a phone")


def make_note(kind: str) -> journal.AuditNote:
    by = events.Actor(name="ann", via="web", device="a \x00 phone \U0001f389", address="192.0.2.1")
    return journal.AuditNote(kind, NOON, by, "subject", "detail")


def make_contact(host_id: str, token_sha256: str = "aa", at_ms: int = NOON, *, name: str = "") -> registry.HostContact:
    return registry.HostContact(host_id=host_id, token_sha256=token_sha256, address="192.0.2.1", at_ms=at_ms, name=name)


async def record_contact(
    store: registry.Registry, visit: registry.HostContact, *, first_state: HostState = HostState.PENDING, most: int = 100
) -> registry.Host | None:
    return await store.record_contact(visit, first_state=first_state, most=most)


class RegistryContract:
    @pytest.fixture
    def make_registry(self) -> MakeRegistry:
        """Makes an unopened registry; each call gives one with the same content, as after a restart."""
        raise NotImplementedError

    @pytest.fixture
    async def store(self, make_registry: MakeRegistry) -> AsyncIterator[registry.Registry]:
        store = make_registry()
        await store.open()
        yield store
        await store.close()

    # Users

    async def test_a_user_is_read_back_exactly(self, store: registry.Registry) -> None:
        assert await store.add_user(make_user())
        assert await store.find_user("ann") == make_user()
        assert await store.find_user("Ann") is None

    async def test_a_second_user_of_the_name_is_refused_and_changes_nothing(self, store: registry.Registry) -> None:
        await store.add_user(make_user())
        assert not await store.add_user(make_user(hashed="$argon2id$other"))
        assert await store.find_user("ann") == make_user()

    async def test_of_many_who_add_the_same_user_at_once_one_does(self, store: registry.Registry) -> None:
        added = await asyncio.gather(*(store.add_user(make_user(hashed=f"$argon2id${number}")) for number in range(20)))
        assert added.count(True) == 1
        stored = await store.find_user("ann")
        assert stored is not None
        assert stored.password_hash == f"$argon2id${added.index(True)}"

    async def test_users_are_listed_by_name(self, store: registry.Registry) -> None:
        assert await store.list_users() == []
        for name in ("zoe", "ann", "mia"):
            await store.add_user(make_user(name))
        assert [one.name for one in await store.list_users()] == ["ann", "mia", "zoe"]

    async def test_a_new_password_revokes_the_user_s_tokens_and_nobody_else_s(self, store: registry.Registry) -> None:
        await store.add_user(make_user())
        await store.add_token(make_token("tok_1"))
        await store.add_token(make_token("tok_2", "bob"))
        assert await store.set_password("ann", "$argon2id$two", NOON + 5)
        assert await store.find_user("ann") == make_user(hashed="$argon2id$two")
        assert await store.find_token("tok_1") == structs.replace(make_token("tok_1"), revoked_at_ms=NOON + 5)
        assert await store.find_token("tok_2") == make_token("tok_2", "bob")

    async def test_a_rehash_keeps_the_tokens_and_gives_way_to_a_new_password(self, store: registry.Registry) -> None:
        await store.add_user(make_user())
        await store.add_token(make_token("tok_1"))
        assert await store.replace_hash("ann", "$argon2id$one", "$argon2id$stronger")
        assert not await store.replace_hash("ann", "$argon2id$one", "$argon2id$late")
        assert await store.find_user("ann") == make_user(hashed="$argon2id$stronger")
        assert await store.find_token("tok_1") == make_token("tok_1")

    async def test_a_removed_user_is_gone_with_all_tokens(self, store: registry.Registry) -> None:
        await store.add_user(make_user())
        await store.add_token(make_token("tok_1"))
        assert await store.remove_user("ann", NOON + 5)
        assert await store.find_user("ann") is None
        assert await store.find_token("tok_1") == structs.replace(make_token("tok_1"), revoked_at_ms=NOON + 5)
        assert await store.add_user(make_user())
        assert await store.list_tokens(NOON, limit=10) == []

    async def test_what_nobody_has_cannot_be_changed(self, store: registry.Registry) -> None:
        assert not await store.set_password("ann", "$argon2id$two", NOON)
        assert not await store.replace_hash("ann", "$argon2id$one", "$argon2id$two")
        assert not await store.remove_user("ann", NOON)
        assert not await store.revoke_token("tok_1", NOON)
        assert await store.revoke_tokens("ann", NOON) == 0
        assert await store.find_user("ann") is None
        assert await store.find_token("tok_1") is None

    async def test_removing_a_name_that_is_no_user_leaves_the_tokens_of_that_name(self, store: registry.Registry) -> None:
        await store.add_token(make_token("tok_1", "owner"))
        assert not await store.remove_user("owner", NOON)
        assert not await store.set_password("owner", "$argon2id$two", NOON)
        assert await store.find_token("tok_1") == make_token("tok_1", "owner")

    # Tokens

    async def test_a_login_is_noted_with_its_token(self, store: registry.Registry) -> None:
        await store.add_user(make_user())
        assert await store.add_token(make_token("tok_1", created_at_ms=NOON + 7), checked_hash="$argon2id$one")
        assert await store.find_user("ann") == structs.replace(make_user(), last_login_at_ms=NOON + 7)
        assert await store.find_token("tok_1") == make_token("tok_1", created_at_ms=NOON + 7)

    async def test_no_token_is_given_for_a_password_that_was_changed_meanwhile(self, store: registry.Registry) -> None:
        await store.add_user(make_user())
        await store.set_password("ann", "$argon2id$two", NOON)
        assert not await store.add_token(make_token("tok_1"), checked_hash="$argon2id$one")
        assert await store.find_token("tok_1") is None
        assert await store.find_user("ann") == make_user(hashed="$argon2id$two")

    async def test_no_token_is_given_as_a_user_who_was_removed_meanwhile(self, store: registry.Registry) -> None:
        await store.add_user(make_user())
        await store.remove_user("ann", NOON)
        assert not await store.add_token(make_token("tok_1"), checked_hash="$argon2id$one")
        assert await store.find_token("tok_1") is None

    async def test_good_tokens_are_listed_the_newest_first(self, store: registry.Registry) -> None:
        for number in range(1, 5):
            await store.add_token(make_token(f"tok_{number}", created_at_ms=NOON + number))
        await store.add_token(make_token("tok_bob", "bob", created_at_ms=NOON + 9))
        await store.add_token(make_token("tok_old", expires_at_ms=NOON))
        await store.revoke_token("tok_3", NOON)

        assert [one.token_id for one in await store.list_tokens(NOON, limit=10)] == ["tok_bob", "tok_4", "tok_2", "tok_1"]
        assert [one.token_id for one in await store.list_tokens(NOON, limit=2, user="ann")] == ["tok_4", "tok_2"]
        assert await store.list_tokens(NOON, limit=10, user="nobody") == []

    async def test_a_token_is_revoked_once(self, store: registry.Registry) -> None:
        await store.add_token(make_token("tok_1"))
        assert await store.revoke_token("tok_1", NOON + 5)
        assert not await store.revoke_token("tok_1", NOON + 6)
        assert await store.find_token("tok_1") == structs.replace(make_token("tok_1"), revoked_at_ms=NOON + 5)

    async def test_an_expired_token_was_not_good_until_now(self, store: registry.Registry) -> None:
        await store.add_token(make_token("tok_1", expires_at_ms=NOON))
        assert not await store.revoke_token("tok_1", NOON)
        assert await store.revoke_tokens("ann", NOON) == 0

    async def test_all_tokens_of_a_user_are_revoked_together(self, store: registry.Registry) -> None:
        for number in range(3):
            await store.add_token(make_token(f"tok_{number}"))
        await store.add_token(make_token("tok_bob", "bob"))
        await store.revoke_token("tok_0", NOON)
        assert await store.revoke_tokens("ann", NOON) == 2
        assert [one.token_id for one in await store.list_tokens(NOON, limit=10)] == ["tok_bob"]

    async def test_only_expired_tokens_are_pruned_and_revoked_ones_stay_until_then(self, store: registry.Registry) -> None:
        await store.add_token(make_token("tok_1", expires_at_ms=NOON))
        await store.add_token(make_token("tok_2", expires_at_ms=NOON + 1))
        await store.revoke_token("tok_2", NOON)
        assert await store.prune_tokens(NOON) == 1
        assert await store.find_token("tok_1") is None
        assert await store.find_token("tok_2") is not None
        assert await store.prune_tokens(NOON + 1) == 1

    async def test_a_token_for_a_program_is_read_back_exactly(self, store: registry.Registry) -> None:
        made = structs.replace(make_token("tok_1"), name="ci", scope=Role.APPROVER, secret_sha256="ab" * 32)
        assert await store.add_token(made)
        assert await store.find_token("tok_1") == made
        assert "abab" not in repr(made)
        await store.use_token("tok_1", NOON + 9)
        await store.use_token("tok_1", NOON + 3)
        await store.use_token("tok_none", NOON)
        assert await store.list_tokens(NOON, limit=10) == [structs.replace(made, last_used_ms=NOON + 9)]

    # Roles

    async def test_a_role_is_read_back_and_changed(self, store: registry.Registry) -> None:
        assert await store.add_user(structs.replace(make_user(), role=Role.APPROVER))
        assert await store.set_role("ann", Role.ADMIN)
        assert await store.find_user("ann") == structs.replace(make_user(), role=Role.ADMIN)
        assert not await store.set_role("bob", Role.VIEWER)
        assert [one.role for one in await store.list_users()] == [Role.ADMIN]

    async def test_the_last_admin_stays_when_that_is_asked_for(self, store: registry.Registry) -> None:
        await store.add_user(structs.replace(make_user(), role=Role.ADMIN))
        await store.add_user(make_user("bob"))
        with pytest.raises(registry.LastAdmin):
            await store.set_role("ann", Role.OPERATOR, keep_admin=True)
        with pytest.raises(registry.LastAdmin):
            await store.remove_user("ann", NOON, keep_admin=True)
        assert await store.set_role("ann", Role.ADMIN, keep_admin=True)
        assert await store.remove_user("bob", NOON, keep_admin=True)
        assert await store.find_user("ann") == structs.replace(make_user(), role=Role.ADMIN)
        assert await store.set_role("ann", Role.VIEWER)

    async def test_of_two_admins_who_demote_each_other_one_stays(self, store: registry.Registry) -> None:
        for name in ("ann", "bob"):
            await store.add_user(structs.replace(make_user(name), role=Role.ADMIN))
        outcomes = await asyncio.gather(
            *(store.set_role(name, Role.VIEWER, keep_admin=True) for name in ("ann", "bob")), return_exceptions=True
        )
        assert sorted(map(repr, outcomes)) == ["LastAdmin()", "True"]
        assert [one.role for one in await store.list_users()].count(Role.ADMIN) == 1

    # The audit

    async def test_a_note_is_kept_with_the_change_that_it_is_about(self, store: registry.Registry) -> None:
        assert await store.add_user(make_user(), note=make_note("user.added"))
        assert not await store.add_user(make_user(), note=make_note("never"))
        assert await store.set_role("ann", Role.ADMIN, note=make_note("user.role"))
        assert await store.add_token(make_token("tok_1"), note=make_note("login"))
        assert not await store.add_token(make_token("tok_2"), checked_hash="$argon2id$no", note=make_note("never"))
        assert await store.revoke_token("tok_1", NOON, note=make_note("token.revoked"))
        assert not await store.revoke_token("tok_1", NOON, note=make_note("never"))
        assert await store.set_password("ann", "$argon2id$two", NOON, note=make_note("user.password"))
        with pytest.raises(registry.LastAdmin):
            await store.remove_user("ann", NOON, keep_admin=True, note=make_note("never"))
        assert await store.remove_user("ann", NOON, note=make_note("user.removed"))
        await store.record_note(make_note("login.limited"))
        await record_contact(store, make_contact("host_a"))
        assert await store.set_host_state("host_a", HostState.APPROVED, note=make_note("host.approved"))
        assert not await store.remove_host("host_b", note=make_note("never"))

        notes = await store.list_notes(100)
        kinds = ["host.approved", "login.limited", "user.removed", "user.password", "token.revoked", "login", "user.role"]
        assert [one.kind for _, one in notes] == [*kinds, "user.added"]
        assert [number for number, _ in notes] == list(range(len(notes), 0, -1))
        assert notes[-1][1] == make_note("user.added")
        assert await store.list_notes(2, before=notes[2][0]) == notes[3:5]

    # Hosts

    async def test_a_host_that_comes_for_the_first_time_is_noted(self, store: registry.Registry) -> None:
        host = await record_contact(store, make_contact("host_a", name="workshop"))
        assert host == registry.Host("host_a", "workshop", HostState.PENDING, NOON, NOON, "192.0.2.1", "aa")
        assert await store.find_host("host_a") == host
        nameless = await record_contact(store, make_contact("host_b", at_ms=NOON + 1), first_state=HostState.APPROVED)
        assert nameless is not None
        assert (nameless.name, nameless.state) == ("host_b", HostState.APPROVED)
        assert await store.list_hosts() == [host, nameless]

    async def test_a_host_that_comes_again_was_seen_and_keeps_the_rest(self, store: registry.Registry) -> None:
        await record_contact(store, make_contact("host_a"))
        await store.rename_host("host_a", "mine")
        await store.set_host_state("host_a", HostState.APPROVED)
        again = structs.replace(make_contact("host_a", at_ms=NOON + 9, name="other"), address="198.51.100.7")
        assert await record_contact(store, again) == registry.Host(
            "host_a", "mine", HostState.APPROVED, NOON, NOON + 9, "192.0.2.1", "aa"
        )

    async def test_a_visit_with_another_token_changes_nothing(self, store: registry.Registry) -> None:
        first = await record_contact(store, make_contact("host_a"))
        assert await record_contact(store, make_contact("host_a", "bb", NOON + 9)) == first
        assert await store.find_host("host_a") == first

    async def test_of_many_first_visits_at_once_one_token_is_trusted(self, store: registry.Registry) -> None:
        met = await asyncio.gather(*(record_contact(store, make_contact("host_a", f"{number:02}")) for number in range(20)))
        assert len({host.token_sha256 for host in met if host is not None}) == 1
        assert None not in met

    async def test_after_its_token_was_forgotten_the_next_one_is_trusted(self, store: registry.Registry) -> None:
        await record_contact(store, make_contact("host_a"), first_state=HostState.APPROVED)
        assert await store.forget_host_token("host_a")
        forgotten = await store.find_host("host_a")
        assert forgotten is not None
        assert forgotten.token_sha256 is None
        trusted = await record_contact(store, make_contact("host_a", "bb", NOON + 9))
        assert trusted == registry.Host("host_a", "host_a", HostState.APPROVED, NOON, NOON + 9, "192.0.2.1", "bb")
        assert await record_contact(store, make_contact("host_a", "aa", NOON + 10)) == trusted

    async def test_a_host_is_seen_and_time_never_goes_back(self, store: registry.Registry) -> None:
        await record_contact(store, make_contact("host_a"))
        assert await store.touch_host("host_a", NOON + 9)
        assert await store.touch_host("host_a", NOON + 3)
        await record_contact(store, make_contact("host_a", at_ms=NOON + 4))
        host = await store.find_host("host_a")
        assert host is not None
        assert (host.first_seen_ms, host.last_seen_ms) == (NOON, NOON + 9)

    async def test_a_removed_host_is_new_when_it_comes_again(self, store: registry.Registry) -> None:
        await record_contact(store, make_contact("host_a"))
        await store.set_host_state("host_a", HostState.REFUSED)
        assert await store.remove_host("host_a")
        assert await store.find_host("host_a") is None
        host = await record_contact(store, make_contact("host_a", "bb", NOON + 9))
        assert host == registry.Host("host_a", "host_a", HostState.PENDING, NOON + 9, NOON + 9, "192.0.2.1", "bb")

    async def test_an_unknown_host_cannot_be_changed(self, store: registry.Registry) -> None:
        assert not await store.touch_host("host_a", NOON)
        assert not await store.set_host_state("host_a", HostState.APPROVED)
        assert not await store.rename_host("host_a", "x")
        assert not await store.forget_host_token("host_a")
        assert not await store.remove_host("host_a")
        assert await store.list_hosts() == []

    async def test_when_there_is_no_room_the_longest_unseen_pending_host_goes(self, store: registry.Registry) -> None:
        await record_contact(store, make_contact("host_approved"), first_state=HostState.APPROVED)
        await record_contact(store, make_contact("host_older", at_ms=NOON + 1))
        await record_contact(store, make_contact("host_newer", at_ms=NOON + 2))
        await store.touch_host("host_older", NOON + 3)
        assert await record_contact(store, make_contact("host_new", at_ms=NOON + 4), most=3) is not None
        assert [host.host_id for host in await store.list_hosts()] == ["host_approved", "host_older", "host_new"]

    async def test_decided_hosts_are_never_pushed_out(self, store: registry.Registry) -> None:
        await record_contact(store, make_contact("host_a"), first_state=HostState.APPROVED)
        await record_contact(store, make_contact("host_b"), first_state=HostState.REFUSED)
        assert await record_contact(store, make_contact("host_c"), most=2) is None
        assert [host.host_id for host in await store.list_hosts()] == ["host_a", "host_b"]
        assert await record_contact(store, make_contact("host_a", at_ms=NOON + 1), most=2) is not None

    # What a host has told its hubs

    async def test_the_first_link_with_a_hub_is_remembered(self, store: registry.Registry) -> None:
        assert await store.record_hub("https://hub", NOON) == NOON
        assert await store.record_hub("https://hub", NOON + 9) == NOON
        assert await store.record_hub("https://other", NOON + 9) == NOON + 9

    async def test_marks_are_kept_by_hub_and_the_last_word_stands(self, store: registry.Registry) -> None:
        assert await store.load_acknowledgements("hub") == {}
        await store.store_acknowledgements("hub", [("sess_a", 5, 0), ("sess_b", 7, 0)])
        await store.store_acknowledgements(
            "hub", [registry.HubAcknowledgement("sess_a", 9, NOON), registry.HubAcknowledgement("sess_a", 10, NOON + 1)]
        )
        await store.store_acknowledgements("other", [("sess_a", 1, 0)])
        await store.store_acknowledgements("hub", [])
        assert await store.load_acknowledgements("hub") == {"sess_a": (10, NOON + 1), "sess_b": (7, 0)}
        assert await store.load_acknowledgements("other") == {"sess_a": (1, 0)}

    async def test_marks_of_many_sessions_go_in_at_once(self, store: registry.Registry) -> None:
        await store.store_acknowledgements("hub", [(f"sess_{number}", number, 0) for number in range(5_000)])
        assert await store.load_acknowledgements("hub") == {f"sess_{number}": (number, 0) for number in range(5_000)}

    async def test_concurrent_marks_of_one_session_stand_in_the_order_of_asking(self, store: registry.Registry) -> None:
        await asyncio.gather(*(store.store_acknowledgements("hub", [("sess_a", number, 0)]) for number in range(50)))
        assert await store.load_acknowledgements("hub") == {"sess_a": (49, 0)}

    # Life

    async def test_everything_is_there_after_a_restart(self, make_registry: MakeRegistry) -> None:
        store = make_registry()
        await store.open()
        await store.add_user(make_user())
        await store.add_token(make_token("tok_1"))
        await record_contact(store, make_contact("host_a"))
        await store.record_hub("hub", NOON)
        await store.store_acknowledgements("hub", [("sess_a", 5, 0)])
        await store.close()
        await store.close()

        store = make_registry()
        await store.open()
        assert await store.find_user("ann") == make_user()
        assert await store.find_token("tok_1") == make_token("tok_1")
        assert [host.host_id for host in await store.list_hosts()] == ["host_a"]
        assert await store.record_hub("hub", NOON + 9) == NOON
        assert await store.load_acknowledgements("hub") == {"sess_a": (5, 0)}
        await store.close()

    async def test_a_registry_that_is_not_open_says_so(self, make_registry: MakeRegistry) -> None:
        store = make_registry()
        with pytest.raises(registry.RegistryUnavailable, match="not open"):
            await store.find_user("ann")
        with pytest.raises(registry.RegistryUnavailable, match="not open"):
            await store.add_user(make_user())

    async def test_any_text_is_kept_as_it_is(self, store: registry.Registry) -> None:
        nasty = "'; DROP TABLE users; -- \x00 é \U0001f389 " + "x" * 10_000
        assert await store.add_user(make_user(nasty))
        assert await store.find_user(nasty) == make_user(nasty)
        host = await record_contact(store, make_contact(nasty, name=nasty))
        assert host is not None
        assert (host.host_id, host.name) == (nasty, nasty)
        await store.store_acknowledgements(nasty, [(nasty, 2**62, 2**62)])
        assert await store.load_acknowledgements(nasty) == {nasty: (2**62, 2**62)}

    def test_what_is_secret_is_in_no_repr(self) -> None:
        shown = repr([make_user(hashed="$argon2id$s3cret"), make_contact("host_a", "s3cret")])
        shown += repr(registry.Host("host_a", "a", HostState.PENDING, NOON, NOON, "", "s3cret"))
        assert "s3cret" not in shown
