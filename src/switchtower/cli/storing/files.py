"""The files of a home as a copy reads them, all as of one moment. Takes no lock: who needs one has it already."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from switchtower.stores import migrations, sqlite_look
from switchtower.stores.copying.ports import SECRET_FILES, TransferError
from switchtower.stores.copying.sqlite_reading import SqliteSource, translate_errors


@contextmanager
def open_home_files(journal: Path, registry: Path | None, secrets: Path | None = None) -> Iterator[SqliteSource]:
    """A journal with the registry and the secrets that belong to it, where they are there."""
    kept: dict[str, bytes] = {}
    if secrets is not None:
        for name, file in SECRET_FILES.items():
            with suppress(FileNotFoundError):
                if value := (secrets / file).read_bytes().strip():
                    kept[name] = value
    with sqlite_look.open_readonly(journal) as journal_file:
        _require_current_schema(sqlite_look.read_schema_version(journal_file), sqlite_look.JOURNAL, journal)
        if registry is None or not registry.exists():
            with translate_errors():
                journal_file.execute("BEGIN")
            yield SqliteSource(journal_file, None, kept)
            return
        with sqlite_look.open_readonly(registry, sqlite_look.REGISTRY) as registry_file:
            _require_current_schema(sqlite_look.read_schema_version(registry_file), sqlite_look.REGISTRY, registry)
            with translate_errors():
                journal_file.execute("BEGIN")
                registry_file.execute("BEGIN")
            yield SqliteSource(journal_file, registry_file, kept)


def _require_current_schema(version: int, kind: str, path: Path) -> None:
    if version < max(migrations.load_scripts(kind)):
        raise TransferError(
            f"`{path}` is of an older version", hint="start the daemon of this version once, which brings it up to date"
        )
