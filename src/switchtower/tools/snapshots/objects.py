"""Git's own formats: the id of an object, a tree, a pack; and objects read from a store, through a git process that stays open
for further queries.

Packs are written here and not by git, because git would read each file by its name: a link that replaces the file in that moment
would be followed.

The store of snapshots' objects: the repository that contains the workspace, otherwise our own bare repository.

A repository's objects and refs are accessed through a separate git folder that has links to them and an empty configuration. So
git, while it works here, never reads the programs that the repository's own configuration names."""

import hashlib
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Union

from msgspec import Struct
from msgspec.structs import replace

from switchtower.tools.git import process
from switchtower.tools.git.process import GitUnavailable, VerifiedRepository
from switchtower.tools.processes.cancellation import CancelScope, HelperProgram

FILE = 0o100644
PROGRAM = 0o100755
LINK = 0o120000
FOLDER = 0o40000

_MODES = {b"%o" % mode: mode for mode in (FILE, PROGRAM, LINK, FOLDER)}
_PACK_TYPES = {"tree": 2, "blob": 3}
_QUICK = 1
"""Zlib's level: a run waits for the snapshot."""
_CHUNK = 1024 * 1024
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class TreeEntry(Struct, frozen=True):
    """A name in a tree: its mode and the object behind it."""

    mode: int
    id: str


class DamagedObject(Exception):
    """An object does not match its id, or is not a tree that we would write."""


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def detect_algorithm(id: str) -> str:
    return "sha1" if len(id) == 40 else "sha256"


def compute_object_id(algorithm: str, kind: str, content: bytes) -> str:
    digest = hashlib.new(algorithm, f"{kind} {len(content)}\0".encode(), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def encode_tree(entries: Mapping[bytes, TreeEntry]) -> bytes:
    # Git sorts a folder as if its name ended with a slash.
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1].mode == FOLDER else item[0])
    return b"".join(b"%o %s\0%s" % (entry.mode, name, bytes.fromhex(entry.id)) for name, entry in ordered)


def decode_tree(content: bytes, id: str) -> dict[bytes, TreeEntry]:
    """Returns the entries of the tree with this id. A tree that was tampered with, or that we would not write, is refused."""
    if compute_object_id(detect_algorithm(id), "tree", content) != id:
        raise DamagedObject(f"the tree {id} is not what its id says")
    entries: dict[bytes, TreeEntry] = {}
    id_bytes = len(id) // 2
    at = 0
    while at < len(content):
        name_at = content.find(b" ", at) + 1
        id_at = content.find(b"\0", name_at) + 1
        end = id_at + id_bytes
        mode, name = content[at : name_at - 1], content[name_at : id_at - 1]
        if not (name_at and id_at and end <= len(content)) or mode not in _MODES or not is_plain_name(name):
            raise DamagedObject(f"the tree {id} holds what no snapshot has")
        entries[name] = TreeEntry(_MODES[mode], content[id_at:end].hex())
        at = end
    return entries


def is_plain_name(name: bytes) -> bool:
    """Returns whether it names an entry in a folder, and not one of git's own."""
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name and name.lower() != b".git"


class ObjectPack:
    """Objects for a store, collected in a file."""

    def __init__(self, algorithm: str, file: IO[bytes]) -> None:
        self.algorithm = algorithm
        self.ids: set[str] = set()
        self._file = file
        self._file.write(_encode_pack_header(0))

    def add(self, kind: str, content: bytes) -> str:
        id = compute_object_id(self.algorithm, kind, content)
        if id not in self.ids:
            self.ids.add(id)
            self._file.write(_encode_object_header(_PACK_TYPES[kind], len(content)))
            self._file.write(zlib.compress(content, _QUICK))
        return id

    def finish(self) -> IO[bytes]:
        """Returns the complete file, positioned at its start. Nothing can be added after that."""
        self._file.seek(0)
        self._file.write(_encode_pack_header(len(self.ids)))
        self._file.seek(0)
        digest = hashlib.new(self.algorithm, usedforsecurity=False)
        while chunk := self._file.read(_CHUNK):
            digest.update(chunk)
        self._file.write(digest.digest())
        self._file.flush()
        self._file.seek(0)
        return self._file


def _encode_pack_header(count: int) -> bytes:
    return struct.pack(">4sII", b"PACK", 2, count)


def _encode_object_header(type: int, size: int) -> bytes:
    """Encodes the type and the lowest four bits of the size, then seven bits a byte; the top bit marks that more follow."""
    header = bytearray()
    byte = type << 4 | size & 0x0F
    size >>= 4
    while size:
        header.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    header.append(byte)
    return bytes(header)


_CHECKS_AT_ONCE = 200
"""The batch is so small that neither side's pipe fills up while the other waits."""
_LARGEST = 256 * 1024 * 1024
"""Our objects are never larger. Any user with write access to the repository could put an endless one in their place."""


class ObjectChecker:
    """Checks which objects a store has, in a size that can be read."""

    def __init__(self, running: HelperProgram) -> None:
        self._running = running

    def find_missing(self, ids: Sequence[str]) -> list[str]:
        missing: list[str] = []
        for start in range(0, len(ids), _CHECKS_AT_ONCE):
            chunk = ids[start : start + _CHECKS_AT_ONCE]
            _write_line(self._running, "".join(f"{id}\n" for id in chunk))
            for id in chunk:
                answer = self._running.stdout.readline()
                if not answer.endswith(b"\n"):
                    raise process.GitError("git cat-file ended early")
                if not _is_present(answer.split()):
                    missing.append(id)
        return missing


class ObjectReader:
    """Reads objects, and refuses any that does not match its id."""

    def __init__(self, running: HelperProgram, cancel_scope: CancelScope) -> None:
        self._running = running
        self._cancel_scope = cancel_scope

    def read_blob(self, id: str) -> bytes:
        content = self._read(id, "blob")
        if compute_object_id(detect_algorithm(id), "blob", content) != id:
            raise DamagedObject(f"the object {id} is not what its id says")
        return content

    def read_tree(self, id: str) -> dict[bytes, TreeEntry]:
        return decode_tree(self._read(id, "tree"), id)

    def _read(self, id: str, kind: str) -> bytes:
        self._cancel_scope.raise_if_cancelled()
        _write_line(self._running, f"{id}\n")
        answer = self._running.stdout.readline().split()
        if len(answer) != 3 or answer[0] != id.encode():
            raise DamagedObject(f"the object {id} is gone")
        size = int(answer[2])
        if size > _LARGEST:
            raise process.GitError(f"the object {id} is not ours")  # and git is about to send all of it
        content = self._running.stdout.read(size + 1)[:-1]
        if answer[1] != kind.encode() or len(content) != size:
            raise DamagedObject(f"the object {id} is no {kind}")
        return content


def _is_present(answer: Sequence[bytes]) -> bool:
    """Returns whether it exists; an unreadable object counts as missing."""
    match answer:
        case [_, b"missing"]:
            return False
        case [_, _, size]:
            return int(size) <= _LARGEST
        case _:
            return True


def _write_line(running: HelperProgram, text: str) -> None:
    try:
        running.stdin.write(text.encode())
        running.stdin.flush()
    except BrokenPipeError:
        raise process.GitError("git cat-file ended early") from None


FolderTree = dict[str, Union[TreeEntry, "FolderTree"]]


class MissingObject(Exception):
    """The store has lost an object that an earlier snapshot stored, and that no ref has kept since."""


class _Tree(Struct):
    id: str
    content: bytes
    folders: list["_Tree"]
    files: list[str]


def add_trees(files: FolderTree, unread: set[str], pack: ObjectPack, checker: ObjectChecker) -> str:
    """Adds the trees that the store lacks to the pack. When the store has a tree, it has everything in it; otherwise the files
    that were not read again are checked too.
    """
    top = _encode_folder(files, pack.algorithm)
    doubtful: set[str] = set()
    level = [top]
    while level:
        missing = set(checker.find_missing([tree.id for tree in level]))
        # Git reports that the empty tree exists, even where it does not.
        new = [tree for tree in level if tree.id in missing or not tree.content]
        for tree in new:
            pack.add("tree", tree.content)
            doubtful.update(unread.intersection(tree.files))
        level = [folder for tree in new for folder in tree.folders]
    if checker.find_missing(list(doubtful)):
        raise MissingObject
    return top.id


def _encode_folder(folder: FolderTree, algorithm: str) -> _Tree:
    entries: dict[bytes, TreeEntry] = {}
    folders: list[_Tree] = []
    for name, inside in folder.items():
        if isinstance(inside, TreeEntry):
            entries[os.fsencode(name)] = inside
        else:
            folders.append(_encode_folder(inside, algorithm))
            entries[os.fsencode(name)] = TreeEntry(FOLDER, folders[-1].id)
    content = encode_tree(entries)
    files = [entry.id for entry in entries.values() if entry.mode != FOLDER]
    return _Tree(compute_object_id(algorithm, "tree", content), content, folders, files)


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
    def open_checker(self, cancel_scope: CancelScope) -> Iterator[ObjectChecker]:
        with self.git.start(cancel_scope, "cat-file", "--batch-check", stdin=subprocess.PIPE) as running:
            yield ObjectChecker(running)

    @contextmanager
    def open_reader(self, cancel_scope: CancelScope) -> Iterator[ObjectReader]:
        with self.git.start(cancel_scope, "cat-file", "--batch", stdin=subprocess.PIPE) as running:
            yield ObjectReader(running, cancel_scope)

    def write(self, pack: ObjectPack, cancel_scope: CancelScope) -> None:
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
