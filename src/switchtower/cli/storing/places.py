"""Where a store is, as a command line spells it: `postgresql://…`, `sqlite` for this home's files, or the folder of a home."""

from pathlib import Path

from msgspec import Struct

from switchtower import config
from switchtower.stores.copying.ports import CannotCopy

_SCHEMES = ("postgresql://", "postgres://")


class Home(Struct, frozen=True):
    """The files of a home."""

    settings: config.Settings

    @property
    def shown(self) -> str:
        return str(self.settings.data_dir)


class Database(Struct, frozen=True):
    dsn: str

    @property
    def shown(self) -> str:
        from switchtower.stores.postgres_tools import addresses

        return addresses.shown(self.dsn)

    def __repr__(self) -> str:
        return f"Database({self.shown!r})"


Place = Home | Database


def is_database(text: str) -> bool:
    return text.startswith(_SCHEMES)


def read(text: str) -> Place:
    """Raises `CannotCopy` for what is no home, and `config.ConfigError`."""
    if is_database(text):
        return Database(text)
    if text == "sqlite":
        return Home(config.load())
    if "://" in text:  # not shown: it may hold a password
        raise CannotCopy("FROM or TO is an address of another kind than `postgresql://…`", hint="see `tower store copy --help`")
    path = Path(text.removeprefix("sqlite:")).expanduser().absolute()
    if path.is_file() or (path / "journal.db").exists():
        folder = path.parent if path.is_file() else path
        raise CannotCopy(f"`{path}` is not the folder of a home", hint=f"name the folder above `data`, such as `{folder.parent}`")
    return Home(config.load({"home": path}))


def in_force(settings: config.Settings, chosen: str | None) -> str | None:
    """The database of this command, if it is one: what was chosen on its line, else the setting."""
    if chosen is None:
        return settings.store
    if chosen == "sqlite":
        return None
    if not is_database(chosen):
        raise CannotCopy("--store is neither `postgresql://…` nor `sqlite`", hint="see `tower store copy --help`")
    return chosen
