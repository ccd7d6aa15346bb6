"""Stored keys: in the keyring where one works, else in a file that only the owner reads, and each for one address."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import keyring
import keyring.backend
import keyring.errors
import pytest
from keyring.backends import fail, null

from switchtower.models.keys import FILE, KeyStore, KeyStoreError

KEY, ADDRESS = "sk-test-0123456789abcdef", "https://api.openai.com/v1"


class MemoryKeyring(keyring.backend.KeyringBackend):
    priority = 1.0  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise keyring.errors.PasswordDeleteError


@pytest.fixture(autouse=True)
def usual_keyring() -> Iterator[None]:
    before = keyring.get_keyring()
    yield
    keyring.set_keyring(before)


def test_a_keyring_that_works_holds_the_key_and_the_file_only_lists_it(tmp_path: Path) -> None:
    keyring.set_keyring(backend := MemoryKeyring())
    store = KeyStore(tmp_path)

    assert store.write("openai", KEY, ADDRESS) == "keyring"

    assert list(backend.kept.values()) == [KEY]
    assert KEY not in (tmp_path / FILE).read_text()
    assert KeyStore(tmp_path).read("openai") == KEY
    assert store.remove("openai") == "keyring"
    assert backend.kept == {}
    assert store.remove("openai") is None


@pytest.mark.parametrize("backend", [fail.Keyring, null.Keyring])
def test_without_a_keyring_the_key_is_in_a_file_for_the_owner_alone(
    tmp_path: Path, backend: type[keyring.backend.KeyringBackend]
) -> None:
    keyring.set_keyring(backend())
    store = KeyStore(tmp_path / "new")

    assert store.write("openai", KEY, ADDRESS) == "file"

    assert stat.S_IMODE((tmp_path / "new" / FILE).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "new").iterdir()] == [FILE], "nothing half-written is left"
    assert KeyStore(tmp_path / "new").read("openai") == KEY
    assert KEY not in repr(store.list_keys())


def test_a_key_is_found_for_its_own_address_only(tmp_path: Path) -> None:
    keyring.set_keyring(fail.Keyring())
    store = KeyStore(tmp_path)
    store.write("openai", KEY, ADDRESS)

    assert store.find(("work", "openai"), ADDRESS) is not None
    assert store.find(("work", "openai"), "http://evil.test/v1") is None


@pytest.mark.parametrize("content", [b"{", b"[]", json.dumps({"openai": {"address": 1}}).encode(), b"\xff"])
def test_a_damaged_file_is_not_used_and_not_written_over(tmp_path: Path, content: bytes) -> None:
    keyring.set_keyring(fail.Keyring())
    (tmp_path / FILE).write_bytes(content)
    (tmp_path / FILE).chmod(0o600)
    store = KeyStore(tmp_path)

    assert store.list_keys() == {}
    assert "is damaged" in (store.problem or "")
    with pytest.raises(KeyStoreError):
        store.write("openai", KEY, ADDRESS)
    assert (tmp_path / FILE).read_bytes() == content


def test_a_file_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    keyring.set_keyring(fail.Keyring())
    store = KeyStore(tmp_path)
    store.write("openai", KEY, ADDRESS)
    (tmp_path / FILE).chmod(0o640)

    assert store.list_keys() == {}
    assert "chmod 600" in (store.problem or "")


def test_a_keyring_that_fails_later_is_named_and_the_error_holds_no_key(tmp_path: Path) -> None:
    keyring.set_keyring(MemoryKeyring())
    KeyStore(tmp_path).write("openai", KEY, ADDRESS)
    keyring.set_keyring(fail.Keyring())

    with pytest.raises(KeyStoreError) as problem:
        KeyStore(tmp_path).read("openai")

    assert "system keyring" in problem.value.message
    assert KEY not in problem.value.message + problem.value.hint
