"""Where a store is, as a command line spells it: `postgresql://…`, `sqlite` for this home's files, or the folder of a home."""

from pathlib import Path

from msgspec import Struct

from switchtower import config
from switchtower.stores.copying.ports import TransferError

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
        from switchtower.stores.postgres_tools import addresses

        return addresses.mask_password(self.dsn)

    def __repr__(self) -> str:
        return f"Database({self.display_name!r})"


StoreLocation = HomeStore | DatabaseStore


def is_database(text: str) -> bool:
    return text.startswith(_SCHEMES)


def parse_location(text: str) -> StoreLocation:
    """Raises `CannotCopy` for what is no home, and `config.ConfigError`."""
    if is_database(text):
        return DatabaseStore(text)
    if text == "sqlite":
        return HomeStore(config.load())
    if "://" in text:  # not shown: it may hold a password
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
    """The database of this command, if it is one: what was chosen on its line, else the setting."""
    if chosen is None:
        return settings.store
    if chosen == "sqlite":
        return None
    if not is_database(chosen):
        raise TransferError("--store is neither `postgresql://…` nor `sqlite`", hint="see `tower store copy --help`")
    return chosen
