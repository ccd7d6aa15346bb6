"""Reads a provider's key: from a variable, from a command that prints it, or from the keys that the owner has stored with
`tower login`, in the system keyring or in a file that only the owner can read. Keys are never shown.

The file lists which keys exist; the keyring has the values where it works. A key is stored with its address, and is sent to no
other. The calls block, and a keyring may ask the user for its password.
"""

import asyncio
import contextlib
import os
import selectors
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from switchtower.core import errors
from switchtower.models import entries

TIMEOUT = 10.0
_GLANCE = 0.01
"""The seconds between two checks whether the command has ended, or the caller has given up."""
LONGEST = 16_384
"""The most bytes of a command's output; a key is shorter, and a command that prints without end is not waited for."""


def read_key(entry: entries.ProviderEntry, environ: Mapping[str, str]) -> str | None:
    return next((value for name in entry.key_variables if (value := environ.get(name, "").strip())), None)


async def request_key(entry: entries.ProviderEntry, environ: Mapping[str, str], timeout_s: float = TIMEOUT) -> str:
    """Runs `run_key_command` on a thread. When this is cancelled, so is the command."""
    given_up = threading.Event()
    try:
        return await asyncio.to_thread(run_key_command, entry, environ, timeout_s, given_up=given_up)
    finally:
        given_up.set()


def run_key_command(
    entry: entries.ProviderEntry, environ: Mapping[str, str], timeout: float = TIMEOUT, *, given_up: threading.Event | None = None
) -> str:
    """Runs the entry's command and returns the first line it prints. Blocks. Raises `ProviderNotConfigured`, also soon after it
    is given up.

    An error never contains the command's output: it may be the key, or half of it.
    """
    given_up = given_up or threading.Event()
    setting = f"`key_command` of `[models.{entry.name}]`"
    try:
        process = subprocess.Popen(  # noqa: S603
            entry.key_command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no command"
        raise _make_refusal(entry, f"the {setting} cannot be run: {reason}") from None
    try:
        problem, output = _read_output(process, time.monotonic() + timeout, given_up)
    finally:
        # This kills the whole group, while the process is not yet reaped and the group is certainly its own: it may have left
        # other processes behind.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        exit_code = process.wait()
        assert process.stdout is not None
        process.stdout.close()
    if problem is None and exit_code != 0:
        problem = f"ended with exit code {exit_code}"
    key = output.decode("ascii", "replace").strip().partition("\n")[0].strip()
    if problem is None and not (key and key.isascii() and key.isprintable()):
        problem = "printed no key"
    if problem is not None:
        raise _make_refusal(entry, f"the {setting} {problem}")
    return key


def _read_output(process: "subprocess.Popen[bytes]", deadline: float, given_up: threading.Event) -> tuple[str | None, bytes]:
    """Returns its output, or the reason why its end was not waited for."""
    assert process.stdout is not None
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline and not given_up.is_set():
            if not selector.select(_GLANCE):
                continue
            piece = os.read(process.stdout.fileno(), LONGEST)
            output += piece
            if len(output) > LONGEST:
                return "printed more than a key", b""
            if not piece:
                break
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= deadline or given_up.is_set():
            return "did not end in time", b""
        time.sleep(_GLANCE)
    return None, output


def _make_refusal(entry: entries.ProviderEntry, detail: str) -> errors.ProviderNotConfigured:
    return errors.ProviderNotConfigured(f"`{entry.name}`: {detail}", hint="run it in a terminal and see what it prints")


KeyPlace = Literal["keyring", "file"]
FILE = "keys.json"
SERVICE = "switchtower"


class KeyStoreError(Exception):
    """Stored keys cannot be used; the message gives the reason and never contains a key."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StoredKey(Struct, frozen=True):
    address: str
    place: KeyPlace
    key: str | None = None
    """None when the keyring has it."""

    def __repr__(self) -> str:
        return f"StoredKey({self.address!r}, {self.place!r})"


class KeyStore:
    def __init__(self, folder: Path) -> None:
        """`folder` is the configuration's; each has its own keys, in the keyring too."""
        self._file = folder / FILE
        self._service = f"{SERVICE}:{folder}"
        self._seen: tuple[int, ...] | None = None
        self._listed: dict[str, StoredKey] = {}
        self.problem: str | None = None
        """The reason why the file is not used."""

    @property
    def version(self) -> tuple[int, ...] | None:
        """Changes when the file was changed; None when it does not exist."""
        try:
            found = self._file.stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_uid)

    def list_keys(self) -> dict[str, StoredKey]:
        """Returns the keys by the provider's name. The file is read again when it has changed."""
        if (version := self.version) != self._seen:
            self._listed, self.problem = {}, None
            if version is not None:
                try:
                    self._listed = self._read()
                except KeyStoreError as problem:
                    self.problem = f"{problem.message}; hint: {problem.hint}"
            self._seen = version
        return self._listed

    def find(self, names: tuple[str, ...], address: str | None) -> tuple[str, StoredKey] | None:
        """Returns the first of these names that has a key for this very address."""
        listed = self.list_keys()
        return next(((name, listed[name]) for name in names if name in listed and listed[name].address == address), None)

    def read(self, name: str) -> str:
        """Raises `KeyStoreError`."""
        stored = self.list_keys().get(name)
        if stored is None:
            raise KeyStoreError(f"no key of `{name}` is stored", f"run `tower login {name}`")
        if stored.key is not None:
            return stored.key
        with _translate_keyring_errors(name):
            import keyring

            if key := keyring.get_password(self._service, name):
                return key
        raise KeyStoreError(f"the system keyring has no key of `{name}` any more", f"run `tower login {name}`")

    def write(self, name: str, key: str, address: str) -> KeyPlace:
        """Stores the key in the keyring, or in the file where no keyring works; returns which. Raises `KeyStoreError`."""
        place: KeyPlace = "keyring" if self._put_into_keyring(name, key) else "file"
        self._write({**self._read(), name: StoredKey(address, place, None if place == "keyring" else key)})
        return place

    def remove(self, name: str) -> KeyPlace | None:
        """Returns where the key was; None when none was stored. Raises `KeyStoreError`."""
        kept = self._read()
        stored = kept.pop(name, None)
        if stored is None:
            return None
        if stored.place == "keyring":
            with _translate_keyring_errors(name):
                import keyring
                import keyring.errors

                with contextlib.suppress(keyring.errors.PasswordDeleteError):
                    keyring.delete_password(self._service, name)
        self._write(kept)
        return stored.place

    def _put_into_keyring(self, name: str, key: str) -> bool:
        """Returns whether the keyring has it now. Only reading it again shows that: some backends store nothing, or raise
        anything.
        """
        try:
            import keyring

            keyring.set_password(self._service, name, key)
            return keyring.get_password(self._service, name) == key
        except Exception:
            return False

    def _read(self) -> dict[str, StoredKey]:
        try:
            with self._file.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                    raise KeyStoreError(
                        f"`{self._file}` is not yours alone", f"check who owns it, then `chmod 600 '{self._file}'`"
                    )
                return msgspec.json.decode(file.read(), type=dict[str, StoredKey])
        except FileNotFoundError:
            return {}
        except OSError as problem:
            raise KeyStoreError(f"`{self._file}` cannot be read: {problem.strerror}", "see who owns it") from None
        except msgspec.MsgspecError:
            raise KeyStoreError(f"`{self._file}` is damaged", "remove it and run `tower login` again") from None

    def _write(self, keys: dict[str, StoredKey]) -> None:
        """Writes the file atomically; only the owner can read it from the first byte."""
        temporary = self._file.with_name(f".{FILE}.{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(msgspec.json.encode(keys))
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self._file)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        except OSError as problem:
            raise KeyStoreError(f"`{self._file}` cannot be written: {problem.strerror}", "see who owns its folder") from None


@contextlib.contextmanager
def _translate_keyring_errors(name: str) -> Iterator[None]:
    try:
        yield
    except KeyStoreError:
        raise
    except Exception as problem:  # a backend may raise anything
        raise KeyStoreError(
            f"the key of `{name}` is in the system keyring, which cannot be used here ({type(problem).__name__})",
            f"run `tower login {name}` here",
        ) from None
