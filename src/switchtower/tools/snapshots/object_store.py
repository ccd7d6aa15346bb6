"""The store of snapshots' objects: the repository that contains the workspace, otherwise our own bare repository.

A repository's objects and refs are accessed through a separate git folder that has links to them and an empty configuration. So
git, while it works here, never reads the programs that the repository's own configuration names.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from switchtower.tools.git import process
from switchtower.tools.git.process import GitUnavailable, VerifiedRepository
from switchtower.tools.processes.cancellation import CancelScope
from switchtower.tools.snapshots import objects

REFS = "refs/switchtower"
_OWN = "own"
_REPOSITORY = "repository"
_SCRATCH = "scratch-"
_MOST_LOOSE = 100
"""More new objects than this stay together in a pack; fewer are stored loose, so that packs do not pile up."""


class ObjectStore(Struct, frozen=True):
    git_dir: str
    object_folder: str
    algorithm: str
    also_read: tuple[str, ...] = ()
    """Further folders of objects, for reading."""
    shared: str = "umask"
    """Git's `core.sharedRepository`, so that other users of a shared repository can still write into it."""

    @property
    def git(self) -> process.GitRunner:
        variables = {
            **process.OWN_WORDS_ONLY,
            "GIT_DIR": self.git_dir,
            "GIT_OBJECT_DIRECTORY": self.object_folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(_quote_path(folder) for folder in self.also_read),
        }
        return process.GitRunner(cwd=self.git_dir, variables=variables)

    @contextmanager
    def open_scratch(self, folder: Path) -> Iterator["ObjectStore"]:
        """Yields a store that reads the same objects, and writes to a temporary folder."""
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as temporary:
            yield replace(self, object_folder=temporary, also_read=(self.object_folder, *self.also_read), shared="umask")

    @contextmanager
    def open_checker(self, cancel_scope: CancelScope) -> Iterator[objects.ObjectChecker]:
        with self.git.start(cancel_scope, "cat-file", "--batch-check", stdin=subprocess.PIPE) as running:
            yield objects.ObjectChecker(running)

    @contextmanager
    def open_reader(self, cancel_scope: CancelScope) -> Iterator[objects.ObjectReader]:
        with self.git.start(cancel_scope, "cat-file", "--batch", stdin=subprocess.PIPE) as running:
            yield objects.ObjectReader(running, cancel_scope)

    def write(self, pack: objects.ObjectPack, cancel_scope: CancelScope) -> None:
        if not pack.ids:
            return
        how = ["unpack-objects", "-q"] if len(pack.ids) <= _MOST_LOOSE else ["index-pack", "--stdin"]
        self.git.run(cancel_scope, "-c", f"core.sharedRepository={self.shared}", *how, stdin=pack.finish())

    def keep(self, ref: str, id: str, cancel_scope: CancelScope) -> None:
        self.git.run(cancel_scope, "-c", f"core.sharedRepository={self.shared}", "update-ref", f"{REFS}/{ref}", id)

    def drop(self, prefix: str, cancel_scope: CancelScope) -> None:
        """Deletes all refs below the prefix."""
        listed = self.git.run(cancel_scope, "for-each-ref", "--format=%(refname)", f"{REFS}/{prefix}/")
        commands = b"".join(b"delete %s\n" % name for name in listed.splitlines())
        if commands:
            with tempfile.TemporaryFile() as file:
                file.write(commands)
                file.seek(0)
                self.git.run(cancel_scope, "update-ref", "--stdin", stdin=file)

    def clean(self, cancel_scope: CancelScope) -> None:
        """Removes objects that no ref keeps. It is only for our own store: in a repository, the owner decides that."""
        self.git.try_run(cancel_scope, "gc", "--quiet", "--prune=now")


def open_store(repository: VerifiedRepository | None, folder: Path) -> ObjectStore:
    """Returns the store of the workspace whose data we keep in `folder`; creates it when it does not exist yet."""
    _sweep(folder)
    own, beside = folder / _OWN, folder / _REPOSITORY
    if repository is None:
        _lay_out(own, "sha1", links={})
        store = ObjectStore(git_dir=str(own), object_folder=str(own / "objects"), algorithm="sha1")
        # The workspace may have been part of a repository when earlier snapshots were taken.
        return replace(store, also_read=(str(beside / "objects"),)) if beside.exists() else store
    common = Path(repository.common_dir)
    _lay_out(beside, repository.algorithm, links={name: common / name for name in _list_shared_names(common)})
    store = ObjectStore(
        git_dir=str(beside),
        object_folder=repository.objects,
        algorithm=repository.algorithm,
        shared=_detect_sharing(common / "objects"),
    )
    if repository.algorithm == "sha1" and own.exists():
        # The workspace was a plain folder when earlier snapshots were taken.
        return replace(store, also_read=(str(own / "objects"),))
    return store


def find_own_store(folder: Path) -> ObjectStore | None:
    """Returns the separate store that the workspace has had so far."""
    return _find_existing(folder / _OWN)


def list_stores(folder: Path) -> list[ObjectStore]:
    """Returns the stores that the workspace has had so far, whatever it is now."""
    return [place for place in map(_find_existing, (folder / _OWN, folder / _REPOSITORY)) if place]


def _find_existing(place: Path) -> ObjectStore | None:
    objects = place / "objects"
    return ObjectStore(git_dir=str(place), object_folder=str(objects), algorithm="") if objects.is_dir() else None


def _list_shared_names(common: Path) -> list[str]:
    names = ["refs", "packed-refs", "objects"]
    return [*names, "reftable"] if (common / "reftable").is_dir() else names


def _lay_out(place: Path, algorithm: str, links: Mapping[str, Path]) -> None:
    """Makes an empty git folder, or one with nothing but links in it."""
    place.mkdir(parents=True, exist_ok=True)
    for name, target in links.items():
        link = place / name
        if not link.is_symlink() or link.readlink() != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    if not links:
        for name in ("refs", "objects"):
            (place / name).mkdir(exist_ok=True)
    extensions = f"\tobjectFormat = {algorithm}\n" if algorithm != "sha1" else ""
    extensions += "\trefStorage = reftable\n" if "reftable" in links else ""
    version = 1 if extensions else 0
    config = f"[core]\n\trepositoryFormatVersion = {version}\n\tbare = true\n"
    _write(place / "config", config + (f"[extensions]\n{extensions}" if extensions else ""))
    _write(place / "HEAD", "ref: refs/heads/none\n")


def _write(path: Path, text: str) -> None:
    with suppress(FileNotFoundError):
        if path.read_text() == text:
            return
    path.write_text(text)


def _detect_sharing(folder: Path) -> str:
    try:
        mode = folder.stat().st_mode
    except OSError as error:
        reason = f"the repository's objects cannot be reached: {error.strerror}"
        raise GitUnavailable(reason, hint="see what `git fsck` says in the workspace") from error
    if not mode & stat.S_ISGID:
        return "umask"
    return "all" if mode & stat.S_IWOTH else "group"


def _sweep(folder: Path) -> None:
    """Removes the leftovers of a killed daemon."""
    for left in folder.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)


def _quote_path(folder: str) -> str:
    """Quotes the path for git: a colon would end the name."""
    escaped = "".join(f"\\{byte:03o}" if byte < 0x20 or byte in b'"\\' else chr(byte) for byte in os.fsencode(folder))
    return '"' + os.fsdecode(escaped.encode("latin-1")) + '"'
