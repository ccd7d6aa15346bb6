"""Locates a store from the command line: `postgresql://…`, `sqlite` for this home's files, or the folder of a home.

It opens a home's files for a copy in one snapshot. It takes no lock: a caller that needs one already holds it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from switchtower import config
from switchtower.stores.sqlite import database, inspection
from switchtower.stores.transfer.ports import SECRET_FILES, TransferError
from switchtower.stores.transfer.sqlite import SqliteSource, translate_errors

_SCHEMES = ("postgresql://", "postgres://")


class HomeStore(Struct, frozen=True):
    """The files of a home."""

    settings: config.Settings

    @property
    def display_name(self) -> str:
        return str(self.settings.data_dir)


class DatabaseStore(Struct, frozen=True):
    dsn: str

    @property
    def display_name(self) -> str:
        from switchtower.stores.postgres import database as postgres_database

        return postgres_database.mask_password(self.dsn)

    def __repr__(self) -> str:
        return f"Database({self.display_name!r})"


StoreLocation = HomeStore | DatabaseStore


def is_database(text: str) -> bool:
    return text.startswith(_SCHEMES)


def parse_location(text: str) -> StoreLocation:
    """Raises `TransferError` if the text names no home, and `config.ConfigError`."""
    if is_database(text):
        return DatabaseStore(text)
    if text == "sqlite":
        return HomeStore(config.load())
    if "://" in text:  # not printed: it may contain a password
        raise TransferError(
            "FROM or TO is an address of another kind than `postgresql://…`", hint="see `tower store copy --help`"
        )
    path = Path(text.removeprefix("sqlite:")).expanduser().absolute()
    if path.is_file() or (path / "journal.db").exists():
        folder = path.parent if path.is_file() else path
        raise TransferError(
            f"`{path}` is not the folder of a home", hint=f"name the folder above `data`, such as `{folder.parent}`"
        )
    return HomeStore(config.load({"home": path}))


def choose_database(settings: config.Settings, chosen: str | None) -> str | None:
    """Returns the database for this command, if it uses one: from the command line, else from the setting."""
    if chosen is None:
        return settings.store
    if chosen == "sqlite":
        return None
    if not is_database(chosen):
        raise TransferError("--store is neither `postgresql://…` nor `sqlite`", hint="see `tower store copy --help`")
    return chosen


@contextmanager
def open_home_files(journal: Path, registry: Path | None, secrets: Path | None = None) -> Iterator[SqliteSource]:
    """Opens a journal, with the registry and the secrets that belong to it if they exist."""
    kept: dict[str, bytes] = {}
    if secrets is not None:
        for name, file in SECRET_FILES.items():
            with suppress(FileNotFoundError):
                if value := (secrets / file).read_bytes().strip():
                    kept[name] = value
    with inspection.open_readonly(journal) as journal_file:
        _require_current_schema(inspection.read_schema_version(journal_file), inspection.JOURNAL, journal)
        if registry is None or not registry.exists():
            with translate_errors():
                journal_file.execute("BEGIN")
            yield SqliteSource(journal_file, None, kept)
            return
        with inspection.open_readonly(registry, inspection.REGISTRY) as registry_file:
            _require_current_schema(inspection.read_schema_version(registry_file), inspection.REGISTRY, registry)
            with translate_errors():
                journal_file.execute("BEGIN")
                registry_file.execute("BEGIN")
            yield SqliteSource(journal_file, registry_file, kept)


def _require_current_schema(version: int, kind: str, path: Path) -> None:
    if version < max(database.load_scripts(kind)):
        raise TransferError(
            f"`{path}` is of an older version", hint="start the daemon of this version once, which brings it up to date"
        )
