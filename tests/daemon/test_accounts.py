"""Who may log in, who somebody with a token is, and how little a stranger learns or can spoil."""

import asyncio
import base64
import json
import logging
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jwt
import pytest
from argon2.exceptions import HashingError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchtower.accounts import credentials, login_limit, passwords
from switchtower.accounts.accounts import Accounts, InvalidAccount, InvalidCredentials, NoSuchUser, UserExists, UserIdentity
from switchtower.accounts.login_limit import LoginLimit, TooManyAttempts
from switchtower.core import events
from switchtower.core.ports import registry
from switchtower.core.roles import Role
from switchtower.settings.sources import ConfigError
from switchtower.stores.sqlite.registry import SqliteRegistry
from switchtower.testing.memory.registry import MemoryRegistry

SECRET = b"a secret of the hub, long enough"
OWNER_TOKEN = "owner-token-0123456789"
PASSWORD = "correct horse"
BY = events.Actor(name="owner", via="local")
CHEAP = passwords.HashCost(1, 8, 1)
HOME = "192.0.2.1"


class AccountClock:
    def __init__(self) -> None:
        self.time = 1_760_000_000.25

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> AccountClock:
    return AccountClock()


@pytest.fixture
async def store() -> AsyncIterator[MemoryRegistry]:
    store = MemoryRegistry()
    await store.open()
    yield store
    await store.close()


Make = Callable[..., Accounts]


@pytest.fixture
async def make_accounts(store: MemoryRegistry, clock: AccountClock) -> AsyncIterator[Make]:
    made: list[Accounts] = []

    def make(store: registry.Registry = store, cost: passwords.HashCost | None = CHEAP, **more: Any) -> Accounts:
        made.append(Accounts(store, more.pop("secret", SECRET), OWNER_TOKEN, clock, cost=cost, **more))
        return made[-1]

    yield make
    for accounts in made:
        accounts.close()


@pytest.fixture
async def accounts(make_accounts: Make) -> Accounts:
    accounts = make_accounts()
    await accounts.add_user("ann", PASSWORD, BY)
    return accounts


async def fail(accounts: Accounts, name: str = "ann", address: str = HOME) -> None:
    with pytest.raises(InvalidCredentials):
        await accounts.login(name, "wrong horse", address)


# Logging in


async def test_a_login_gives_a_token_for_a_day_that_says_who_it_is(
    accounts: Accounts, clock: AccountClock, store: MemoryRegistry
) -> None:
    token = await accounts.login("ann", PASSWORD, HOME, client="phone " * 100)

    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    claims = jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False})
    identity = await accounts.verify(token)
    assert identity == UserIdentity("ann", "access_token", claims["jti"], claims["exp"] * 1_000, Role.OPERATOR)
    assert claims == {"sub": "ann", "jti": claims["jti"], "iat": int(clock.time), "exp": int(clock.time) + 86_400}
    (listed,) = await accounts.list_tokens("ann")
    assert (listed.token_id, listed.user, listed.expires_at_ms) == (claims["jti"], "ann", claims["exp"] * 1_000)
    assert listed.client == ("phone " * 100)[:200]
    user = await store.find_user("ann")
    assert user is not None
    assert user.last_login_at_ms == int(clock.time * 1_000)


async def test_what_was_wrong_is_not_said(accounts: Accounts) -> None:
    said = set()
    for name, password in [
        ("ann", "wrong horse"),
        ("bob", PASSWORD),
        ("Ann", PASSWORD),
        ("ann", ""),
        ("", PASSWORD),
        ("ann\n", PASSWORD),
        ("x" * 65, PASSWORD),
        ("é" * 100_000, PASSWORD),
        ("ann", PASSWORD + " "),
        ("ann", "x" * 1_000_000),
        ("ann", "\ud800 half a pair"),
    ]:
        with pytest.raises(InvalidCredentials) as refused:
            await accounts.login(name, password, f"198.51.100.{len(said)}:{len(name)}")
        said.add(str(refused.value))
    assert said == {"invalid credentials"}
    assert await accounts.list_tokens() == []


async def test_a_stranger_s_name_is_worked_for_like_a_user_s(accounts: Accounts) -> None:
    """Only so much work is done at a time: what is turned away for that was about to be worked for."""
    logins = (accounts.login(f"nobody-{number}", PASSWORD, f"198.51.100.{number}") for number in range(40))
    outcomes = await asyncio.gather(*logins, return_exceptions=True)

    at_most = passwords.MAX_CONCURRENT_HASHES + passwords.MAX_WAITING
    assert sum(isinstance(outcome, InvalidCredentials) for outcome in outcomes) == at_most
    busy = [outcome for outcome in outcomes if isinstance(outcome, TooManyAttempts)]
    assert len(busy) == 40 - at_most
    assert {refusal.retry_after_s for refusal in busy} == {1}


async def test_what_is_done_for_a_stranger_s_name_is_a_hash_at_the_usual_cost() -> None:
    """Seen by a cost that no hash can be made at."""
    impossible = passwords.PasswordHasher(passwords.HashCost(1, 1, 4))
    with pytest.raises(HashingError):
        await impossible.check(PASSWORD, None)
    impossible.close()


async def test_being_turned_away_because_others_are_worked_for_is_no_failure(accounts: Accounts) -> None:
    for _ in range(3):
        logins = (accounts.login(f"nobody-{number}", PASSWORD, f"198.51.100.{number}") for number in range(19))
        late = accounts.login("ann", PASSWORD, HOME)
        *_, refused = await asyncio.gather(*logins, late, return_exceptions=True)
        assert isinstance(refused, TooManyAttempts)
    for _ in range(4):
        await fail(accounts)
    assert await accounts.login("ann", PASSWORD, HOME)


async def test_a_hash_of_the_usual_cost_works_and_one_of_another_cost_is_made_anew(
    make_accounts: Make, store: MemoryRegistry
) -> None:
    cheap, usual = make_accounts(), make_accounts(cost=None)
    await cheap.add_user("ann", PASSWORD, BY)
    first = await cheap.login("ann", PASSWORD, HOME)
    before = await store.find_user("ann")

    await usual.login("ann", PASSWORD, HOME)

    after = await store.find_user("ann")
    assert before is not None
    assert after is not None
    assert "m=8,t=1,p=1" in before.password_hash
    assert "m=65536,t=3,p=4" in after.password_hash
    assert await usual.verify(first) is not None, "a rehash logs nobody out"
    await usual.login("ann", PASSWORD, HOME)
    assert await store.find_user("ann") == after


async def test_logins_at_once_all_succeed_while_the_hash_is_made_anew(make_accounts: Make) -> None:
    await make_accounts().add_user("ann", PASSWORD, BY)
    dearer = make_accounts(cost=passwords.HashCost(2, 16, 1))

    tokens = await asyncio.gather(*(dearer.login("ann", PASSWORD, f"192.0.2.{number}") for number in range(8)))

    assert len(set(tokens)) == 8
    assert all([await dearer.verify(token) for token in tokens])


class RacingRegistry(MemoryRegistry):
    """Somebody else changes a user right after the login has looked at them."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change: str | None = change

    async def find_user(self, name: str) -> registry.User | None:
        user = await super().find_user(name)
        if user is not None and user.created_at_ms and self.change:
            change, self.change = self.change, None
            if change == "remove":
                await self.remove_user(name, 0)
            else:
                await self.set_password(name, passwords.hash_blocking(change, CHEAP), 0)
        return user


async def test_a_hash_that_was_made_anew_while_it_was_checked_keeps_nobody_out(make_accounts: Make) -> None:
    store = RacingRegistry(PASSWORD)
    await store.open()
    accounts = make_accounts(store)
    await store.add_user(registry.User("ann", passwords.hash_blocking(PASSWORD, CHEAP), 1))

    assert await accounts.login("ann", PASSWORD, HOME)


@pytest.mark.parametrize("change", ["remove", "another horse"])
async def test_nobody_gets_in_with_a_password_that_was_taken_away_while_it_was_checked(make_accounts: Make, change: str) -> None:
    store = RacingRegistry(change)
    await store.open()
    accounts = make_accounts(store)
    await store.add_user(registry.User("ann", passwords.hash_blocking(PASSWORD, CHEAP), 1))

    await fail_with_right_password(accounts)

    assert await accounts.list_tokens() == []


async def fail_with_right_password(accounts: Accounts) -> None:
    with pytest.raises(InvalidCredentials):
        await accounts.login("ann", PASSWORD, HOME)


# Tokens


async def test_the_owner_s_token_is_the_owner_and_can_be_exchanged(accounts: Accounts) -> None:
    assert await accounts.verify(OWNER_TOKEN) == UserIdentity("owner", "owner_token", role=Role.ADMIN)
    token = await accounts.exchange_token(OWNER_TOKEN)
    identity = await accounts.verify(token)
    assert identity is not None
    assert (identity.name, identity.via) == ("owner", "access_token")
    (listed,) = await accounts.list_tokens("owner")
    assert (listed.token_id, listed.client) == (identity.token_id, "page")


@pytest.mark.parametrize("wrong", ["", "x", OWNER_TOKEN[:-1], OWNER_TOKEN + "x", OWNER_TOKEN.upper(), "é", "\ud800", "x" * 10**6])
async def test_nothing_else_is_the_owner_s_token(accounts: Accounts, wrong: str) -> None:
    assert await accounts.verify(wrong) is None
    with pytest.raises(InvalidCredentials):
        await accounts.exchange_token(wrong)
    assert await accounts.list_tokens() == []


async def test_an_access_token_cannot_be_exchanged_for_another(accounts: Accounts) -> None:
    token = await accounts.exchange_token(OWNER_TOKEN)
    with pytest.raises(InvalidCredentials):
        await accounts.exchange_token(token)


def test_an_empty_secret_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="empty"):
        Accounts(MemoryRegistry(), SECRET, "")
    with pytest.raises(ValueError, match="empty"):
        Accounts(MemoryRegistry(), b"", OWNER_TOKEN)


async def test_a_token_ends_with_its_day(accounts: Accounts, clock: AccountClock) -> None:
    token = await accounts.login("ann", PASSWORD, HOME)
    clock.time += 86_399
    assert await accounts.verify(token) is not None
    clock.time += 1
    assert await accounts.verify(token) is None
    assert await accounts.list_tokens() == []


async def test_expired_tokens_are_forgotten_when_new_ones_are_given(
    accounts: Accounts, clock: AccountClock, store: MemoryRegistry
) -> None:
    await accounts.login("ann", PASSWORD, HOME)
    (old,) = await accounts.list_tokens()
    clock.time += 90_000
    await accounts.login("ann", PASSWORD, HOME)
    assert await store.find_token(old.token_id) is None


async def test_a_revoked_token_is_nobody_s(accounts: Accounts) -> None:
    first, second = await accounts.login("ann", PASSWORD, HOME), await accounts.login("ann", PASSWORD, HOME)
    identity = await accounts.verify(first)
    assert identity is not None
    assert identity.token_id is not None

    assert await accounts.revoke_token(identity.token_id, BY)
    assert not await accounts.revoke_token(identity.token_id, BY)
    assert await accounts.verify(first) is None
    assert await accounts.verify(second) is not None
    (left,) = await accounts.list_tokens("ann")
    assert await accounts.revoke_token(left.token_id, BY)
    assert await accounts.verify(second) is None


async def test_a_token_ends_with_its_user_and_with_the_password(accounts: Accounts) -> None:
    token = await accounts.login("ann", PASSWORD, HOME)
    await accounts.set_password("ann", "another horse", BY)
    assert await accounts.verify(token) is None
    await fail_with_right_password(accounts)

    token = await accounts.login("ann", "another horse", HOME)
    await accounts.remove_user("ann", BY)
    assert await accounts.verify(token) is None
    await accounts.add_user("ann", "another horse", BY)
    assert await accounts.verify(token) is None, "not even when somebody else is called so"


async def test_what_one_node_revokes_no_other_accepts(make_accounts: Make, tmp_path: Path) -> None:
    stores = [SqliteRegistry(tmp_path / "registry.db") for _ in range(2)]
    for store in stores:
        await store.open()
    here, there = (make_accounts(store) for store in stores)
    await here.add_user("ann", PASSWORD, BY)
    token = await there.login("ann", PASSWORD, HOME)
    identity = await here.verify(token)
    assert identity == await there.verify(token)
    assert identity is not None
    assert identity.token_id is not None
    await here.revoke_token(identity.token_id, BY)
    assert await there.verify(token) is None
    for store in stores:
        await store.close()


def forge_token(claims: dict[str, Any], key: Any = SECRET, algorithm: str | None = "HS256", **header: Any) -> str:
    return jwt.encode(claims, key, algorithm=algorithm, headers=header or None)


def make_unsigned_token(header: Any, claims: Any, signature: bytes = b"") -> str:
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims, signature)]
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts).decode()


@pytest.mark.filterwarnings("ignore::jwt.InsecureKeyLengthWarning")
async def test_a_forged_token_is_nobody_s(accounts: Accounts, clock: AccountClock) -> None:
    token = await accounts.login("ann", PASSWORD, HOME)
    good = jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False})
    head, body, signature = token.split(".")
    later = clock.time + 10**6
    attempts = [
        make_unsigned_token({"alg": "none", "typ": "JWT"}, good),
        make_unsigned_token({"alg": "None"}, good),
        make_unsigned_token({"alg": "none"}, good) + signature,
        make_unsigned_token({"typ": "JWT"}, good),
        make_unsigned_token({"alg": ["HS256"]}, good),
        make_unsigned_token({"alg": "HS256", "crit": ["x"]}, good),
        make_unsigned_token([], []),
        make_unsigned_token(b"[" * 2_900, b"{}"),
        make_unsigned_token({"alg": "HS256"}, b"[" * 5_000),
        make_unsigned_token(b'{"a":' * 1_000, b"{}"),
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{body}.{signature}.{signature}",
        f"{head}.{body}.{signature[:-2]}",
        f"{head}..{signature}",
        token + "\0",
        f" {token}",
        f"Bearer {token}",
        forge_token(good, b"another secret that is long enough"),
        forge_token(good, algorithm="HS384"),
        forge_token(good, algorithm="HS512"),
        # Signed with our secret, as by another program that has it: not given out by us.
        forge_token({**good, "jti": "tok_unknown"}),
        forge_token({**good, "sub": "owner"}),
        forge_token({**good, "exp": int(clock.time)}),
        forge_token({**good, "exp": "tomorrow"}),
        forge_token({**good, "exp": None}),
        forge_token({**good, "exp": [later]}),
        forge_token({name: value for name, value in good.items() if name != "exp"}),
        forge_token({name: value for name, value in good.items() if name != "jti"}),
        forge_token({name: value for name, value in good.items() if name != "sub"}),
    ]
    for attempt in attempts:
        assert len(attempt) <= 8_192, "else it would not even be looked at"
        assert await accounts.verify(attempt) is None, attempt[:200]
    assert await accounts.verify(token) is not None


async def test_a_token_that_says_it_lives_longer_than_was_given_does_not(accounts: Accounts, clock: AccountClock) -> None:
    token = await accounts.login("ann", PASSWORD, HOME)
    good = jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False})
    clock.time += 90_000
    assert await accounts.verify(forge_token({**good, "exp": int(clock.time) + 10**6})) is None


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    token=st.one_of(
        st.text(max_size=200),
        st.binary(max_size=9_000).map(lambda data: data.decode("latin-1")),
        st.lists(st.binary(max_size=60), min_size=1, max_size=5).map(
            lambda parts: ".".join(base64.urlsafe_b64encode(part).decode() for part in parts)
        ),
    )
)
def test_garbage_is_nobody_s_token(token: str) -> None:
    async def look() -> UserIdentity | None:
        store = MemoryRegistry()
        await store.open()
        accounts = Accounts(store, SECRET, OWNER_TOKEN)
        accounts.close()
        return await accounts.verify(token)

    assert asyncio.run(look()) is None


async def test_what_is_too_long_is_not_looked_at(accounts: Accounts) -> None:
    token = await accounts.login("ann", PASSWORD, HOME)
    good = jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False})
    assert await accounts.verify(forge_token({**good, "more": "x" * 5_000})) is not None
    assert await accounts.verify(forge_token({**good, "more": "x" * 8_192})) is None


async def test_a_short_secret_signs_without_complaint(make_accounts: Make, recwarn: pytest.WarningsRecorder) -> None:
    accounts = make_accounts(secret=b"sixteen bytes !!")
    token = await accounts.exchange_token(OWNER_TOKEN)
    assert await accounts.verify(token) is not None
    assert list(recwarn) == []


# Users


async def test_users_are_added_listed_and_removed(accounts: Accounts, clock: AccountClock) -> None:
    await accounts.add_user("b.o_b@example-1.org", PASSWORD, BY)
    assert [(user.name, user.created_at_ms) for user in await accounts.list_users()] == [
        ("ann", int(clock.time * 1_000)),
        ("b.o_b@example-1.org", int(clock.time * 1_000)),
    ]
    await accounts.remove_user("ann", BY)
    assert [user.name for user in await accounts.list_users()] == ["b.o_b@example-1.org"]


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 65, "a/b", "é", "ann\n", "a\0", "owner", "OWNER"])
async def test_a_name_that_nobody_can_have_is_refused(accounts: Accounts, name: str) -> None:
    with pytest.raises(InvalidAccount, match="hint: "):
        await accounts.add_user(name, PASSWORD, BY)
    assert len(await accounts.list_users()) == 1


@pytest.mark.parametrize("password", ["", "seven77", "x" * 1_025, "é" * 513])
async def test_a_password_that_nobody_can_have_is_refused(accounts: Accounts, password: str) -> None:
    with pytest.raises(InvalidAccount, match="hint: ") as refused:
        await accounts.add_user("bob", password, BY)
    assert not password or password not in str(refused.value)
    with pytest.raises(InvalidAccount):
        await accounts.set_password("ann", password, BY)
    assert await accounts.login("ann", PASSWORD, HOME)


async def test_an_existing_user_is_not_added_again(accounts: Accounts) -> None:
    with pytest.raises(UserExists, match=r"hint: .*tower user passwd ann"):
        await accounts.add_user("ann", "another horse", BY)
    outcomes = await asyncio.gather(*(accounts.add_user("bob", f"{PASSWORD} {n}", BY) for n in range(5)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", *["UserExists"] * 4]
    winner = next(number for number, outcome in enumerate(outcomes) if outcome is None)
    assert await accounts.login("ann", PASSWORD, HOME)
    assert await accounts.login("bob", f"{PASSWORD} {winner}", HOME)


async def test_who_is_not_there_cannot_be_changed(accounts: Accounts) -> None:
    with pytest.raises(NoSuchUser, match="hint: "):
        await accounts.set_password("bob", PASSWORD, BY)
    with pytest.raises(NoSuchUser, match="hint: "):
        await accounts.remove_user("bob", BY)


async def test_odd_but_possible_passwords_work(accounts: Accounts) -> None:
    for number, password in enumerate(["  spaces  ", "é" * 512, "\0" * 8, "\ud83d" * 8, "日本語日本語日本"]):
        await accounts.add_user(f"user{number}", password, BY)
        assert await accounts.login(f"user{number}", password, f"198.51.100.{number}")


async def test_the_environment_s_user_logs_in_and_is_never_stored(make_accounts: Make) -> None:
    of_environment = credentials.EnvironmentUser("root", passwords.hash_blocking(PASSWORD, CHEAP))
    accounts = make_accounts(environment_user=of_environment)
    token = await accounts.login("root", PASSWORD, HOME)

    identity = await accounts.verify(token)
    assert identity is not None
    assert identity.name == "root"
    await fail(accounts, "root")
    assert await accounts.list_users() == []
    for change in (
        accounts.add_user("root", PASSWORD, BY),
        accounts.set_password("root", PASSWORD, BY),
        accounts.remove_user("root", BY),
    ):
        with pytest.raises(InvalidAccount, match=r"hint: .*ADMIN_PASSWORD_HASH"):
            await change
    assert await make_accounts().verify(token) is None, "without the environment there is no such user"


# How often


async def test_after_five_failures_one_waits_and_then_the_right_password_works(accounts: Accounts, clock: AccountClock) -> None:
    for _ in range(5):
        await fail(accounts)
    with pytest.raises(TooManyAttempts) as refused:
        await accounts.login("ann", PASSWORD, HOME)
    assert refused.value.retry_after_s == 30
    assert "hint: try again in 30 s" in str(refused.value)
    clock.time += 29.5
    with pytest.raises(TooManyAttempts):
        await accounts.login("ann", PASSWORD, HOME)
    clock.time += 0.5
    assert await accounts.login("ann", PASSWORD, HOME)
    for _ in range(5):
        await fail(accounts)


async def test_of_a_hundred_guesses_at_once_only_the_free_ones_are_looked_at(accounts: Accounts) -> None:
    guesses = (accounts.login("ann", f"wrong horse {number}", HOME) for number in range(100))
    outcomes = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(isinstance(outcome, InvalidCredentials) for outcome in outcomes) == 5
    assert sum(isinstance(outcome, TooManyAttempts) for outcome in outcomes) == 95


async def test_who_leaves_before_the_answer_has_failed(accounts: Accounts) -> None:
    for _ in range(5):
        guess = asyncio.create_task(accounts.login("ann", "wrong horse", HOME))
        await asyncio.sleep(0)
        guess.cancel()
        with pytest.raises(asyncio.CancelledError):
            await guess
    with pytest.raises(TooManyAttempts):
        await accounts.login("ann", PASSWORD, HOME)


async def test_an_attacker_elsewhere_does_not_lock_the_user_out(accounts: Accounts, clock: AccountClock) -> None:
    await accounts.login("ann", PASSWORD, HOME)
    for number in range(50):
        clock.time += 31
        await fail(accounts, address=f"198.51.100.{number}")
    with pytest.raises(TooManyAttempts) as refused:
        await accounts.login("ann", PASSWORD, "203.0.113.9")
    assert refused.value.retry_after_s <= 30
    assert await accounts.login("ann", PASSWORD, HOME), "from where she came before she need not wait"
    clock.time += 31
    assert await accounts.login("ann", PASSWORD, "203.0.113.9"), "from elsewhere she waits a little"


class TestLoginLimit:
    @pytest.fixture
    def limit(self, clock: AccountClock) -> LoginLimit:
        return LoginLimit(clock)

    def attempt(self, limit: LoginLimit, name: str = "ann", address: str = HOME, *, succeeded: bool | None = False) -> None:
        limit.end(limit.begin(name, address), succeeded=succeeded)

    def wait(self, limit: LoginLimit, name: str = "ann", address: str = HOME) -> int:
        try:
            attempt = limit.begin(name, address)
        except TooManyAttempts as refused:
            return refused.retry_after_s
        limit.end(attempt, succeeded=None)
        return 0

    def test_the_wait_doubles_up_to_a_quarter_of_an_hour(self, limit: LoginLimit, clock: AccountClock) -> None:
        waits = []
        for _ in range(12):
            self.attempt(limit)
            waits.append(self.wait(limit))
            clock.time += waits[-1]
        assert waits == [0, 0, 0, 0, 30, 60, 120, 240, 480, 900, 900, 900]

    def test_after_the_wait_one_guess_is_looked_at_at_a_time(self, limit: LoginLimit, clock: AccountClock) -> None:
        for _ in range(5):
            self.attempt(limit)
        clock.time += 30
        guess = limit.begin("ann", HOME)
        assert self.wait(limit) == 1
        limit.end(guess, succeeded=False)
        assert self.wait(limit) == 60

    def test_a_thousand_failures_wait_no_longer(self, limit: LoginLimit, clock: AccountClock) -> None:
        for _ in range(1_100):
            self.attempt(limit)
            clock.time += 900
        self.attempt(limit)
        assert self.wait(limit) == 900

    def test_an_hour_of_quiet_is_forgiven(self, limit: LoginLimit, clock: AccountClock) -> None:
        for _ in range(5):
            self.attempt(limit)
        clock.time += login_limit.ROW_LIFETIME + 1
        for _ in range(4):
            self.attempt(limit)
        assert self.wait(limit) == 0

    def test_a_clock_that_is_set_back_makes_nobody_wait_longer(self, limit: LoginLimit, clock: AccountClock) -> None:
        for _ in range(5):
            self.attempt(limit)
        clock.time -= 10**6
        assert self.wait(limit) == 30

    def test_what_is_our_own_fault_does_not_count(self, limit: LoginLimit) -> None:
        for _ in range(50):
            self.attempt(limit, succeeded=None)
        assert self.wait(limit) == 0
        assert limit.size == 0

    def test_a_login_of_one_s_own_does_not_pay_for_guessing_at_another_s(self, limit: LoginLimit) -> None:
        for _ in range(2):
            self.attempt(limit, "ann")
            self.attempt(limit, "ann")
            self.attempt(limit, "mallory", succeeded=True)
        self.attempt(limit, "ann")
        assert self.wait(limit) == 30

    def test_a_login_forgives_one_s_own_failures(self, limit: LoginLimit) -> None:
        for _ in range(5):
            for _ in range(4):
                self.attempt(limit)
            self.attempt(limit, succeeded=True)
        assert self.wait(limit) == 0

    @pytest.mark.parametrize(
        ("addresses", "other"),
        [
            ([f"192.0.2.1:{4_000 + n}" for n in range(5)], "192.0.2.2"),
            (["192.0.2.1", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:80", "192.0.2.1:80", "192.0.2.1"], "::ffff:192.0.2.3"),
            ([f"2001:db8:1:2::{n:x}" for n in range(1, 6)], "2001:db8:1:3::1"),
            ([f"[2001:db8:1:2::{n:x}]:{n}" for n in range(1, 6)], "[2001:db8:1:3::1]:1"),
            ([f"fe80::{n}%eth0" for n in range(1, 6)], "fe81::1%eth0"),
            (["unix"] * 5, ""),
            (["x" * 1_000 + str(n) for n in range(5)], "y" * 1_000),
        ],
    )
    def test_one_place_is_one_place_however_it_is_spelled(self, limit: LoginLimit, addresses: list[str], other: str) -> None:
        for address in addresses:
            self.attempt(limit, address=address)
        assert self.wait(limit, address=addresses[0]) == 30
        assert self.wait(limit, address=other) == 0

    def test_guessing_from_everywhere_is_slow_too(self, limit: LoginLimit, clock: AccountClock) -> None:
        looked_at = 0
        for number in range(20_000):  # a new address every second
            with suppress(TooManyAttempts):
                self.attempt(limit, address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
                looked_at += 1
            clock.time += 1
        assert looked_at < 20 + 20_000 / 25

    def test_the_tables_stay_small(self, limit: LoginLimit, clock: AccountClock) -> None:
        for number in range(login_limit.MAX_ROWS + 500):
            self.attempt(limit, f"name-{number}", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
            self.attempt(limit, f"n{number}", f"11.{number >> 16}.{number >> 8 & 255}.{number & 255}", succeeded=True)
        assert limit.size == login_limit.MAX_ROWS

    @settings(max_examples=100, deadline=None)
    @given(
        moves=st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from(["1.1.1.1", "1.1.1.2"]), st.sampled_from([True, False, None])),
            max_size=80,
        ),
        pause=st.floats(0, 100),
    )
    def test_whatever_happens_the_wait_ends(self, moves: list[tuple[str, str, bool | None]], pause: float) -> None:
        clock = AccountClock()
        limit = LoginLimit(clock)
        for name, address, succeeded in moves:
            with suppress(TooManyAttempts):
                self.attempt(limit, name, address, succeeded=succeeded)
            assert self.wait(limit, name, address) <= 900
            clock.time += pause
        clock.time += 900
        for address in ("1.1.1.1", "1.1.1.2"):
            assert self.wait(limit, "a", address) == 0


# Secrets


def test_the_signing_secret_is_made_once_and_is_the_owner_s_alone(tmp_path: Path) -> None:
    secret = credentials.load_jwt_secret(tmp_path, {"JWT_SECRET": ""})
    assert len(secret) >= 32
    assert credentials.load_jwt_secret(tmp_path, {}) == secret
    assert [path.name for path in tmp_path.iterdir()] == ["jwt.secret"]
    assert stat.S_IMODE((tmp_path / "jwt.secret").stat().st_mode) == 0o600


def test_the_environment_s_secret_wins_unless_it_is_too_short(tmp_path: Path) -> None:
    assert credentials.load_jwt_secret(tmp_path, {"JWT_SECRET": "sixteen bytes !!"}) == b"sixteen bytes !!"
    with pytest.raises(ConfigError, match="shorter than 16 bytes; hint: ") as refused:
        credentials.load_jwt_secret(tmp_path, {"JWT_SECRET": "fifteen-bytes-!"})
    assert "fifteen" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_kept_secret_that_was_cut_short_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "jwt.secret").write_text("abc")
    with pytest.raises(ConfigError, match="hint: remove the file"):
        credentials.load_jwt_secret(tmp_path, {})


def test_the_environment_s_user_needs_a_name_and_a_hash(caplog: pytest.LogCaptureFixture) -> None:
    hashed = passwords.hash_blocking(PASSWORD, CHEAP)
    assert credentials.read_environment_user({}) is None
    assert caplog.records == []
    assert credentials.read_environment_user({"ADMIN_USERNAME": "root"}) is None
    assert credentials.read_environment_user({"ADMIN_PASSWORD_HASH": hashed}) is None
    assert len(caplog.records) == 2
    user = credentials.read_environment_user({"ADMIN_USERNAME": "root", "ADMIN_PASSWORD_HASH": hashed})
    assert user == credentials.EnvironmentUser("root", hashed)
    assert hashed not in repr(user) + caplog.text


@pytest.mark.parametrize(
    ("name", "hashed"),
    [
        ("root", "s3cret"),
        ("root", "$argon2id$s3cret"),
        ("root", "$2b$12$s3cret"),
        ("two words", ""),
        ("owner", ""),
        ("Owner", ""),
    ],
)
def test_an_environment_s_user_that_cannot_be_is_refused_without_quoting_it(name: str, hashed: str) -> None:
    environ = {"ADMIN_USERNAME": name, "ADMIN_PASSWORD_HASH": hashed or passwords.hash_blocking(PASSWORD, CHEAP)}
    with pytest.raises(ConfigError, match="hint: ") as refused:
        credentials.read_environment_user(environ)
    assert "s3cret" not in str(refused.value)
    assert environ["ADMIN_PASSWORD_HASH"] not in str(refused.value)


async def test_no_secret_is_in_a_log_or_a_repr(
    accounts: Accounts, store: MemoryRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = await accounts.login("ann", PASSWORD, HOME)
    await fail(accounts)
    await accounts.verify(token + "x")
    identity, users, tokens = await accounts.verify(token), await accounts.list_users(), await accounts.list_tokens()

    shown = caplog.text + repr([accounts, identity, users, tokens, vars(accounts)["_limit"], vars(accounts)["_passwords"]])
    for secret in (PASSWORD, "wrong horse", token, OWNER_TOKEN, SECRET.decode(), users[0].password_hash):
        assert secret not in shown


async def test_after_closing_nobody_is_worked_for(accounts: Accounts) -> None:
    accounts.close()
    with pytest.raises(TooManyAttempts):
        await accounts.login("ann", PASSWORD, HOME)
    with pytest.raises(passwords.PasswordHasherBusy):
        await accounts.set_password("ann", "another horse", BY)
