"""Git's own formats: the id of an object, a tree, a pack; and objects read from a store, through a git process that stays open
for further queries.

Packs are written here and not by git, because git would read each file by its name: a link that replaces the file in that moment
would be followed.
"""

import hashlib
import os
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import IO, Union

from msgspec import Struct

from switchtower.tools.git import process
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
