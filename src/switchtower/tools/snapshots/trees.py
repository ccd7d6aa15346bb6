"""From folders of entries to git's trees, and into a pack as far as the store does not have them."""

import os
from typing import Union

from msgspec import Struct

from switchtower.tools.snapshots import objects
from switchtower.tools.snapshots.objects import Entry
from switchtower.tools.snapshots.reading import Checker

Folder = dict[str, Union[Entry, "Folder"]]


class Forgotten(Exception):
    """The store has lost an object that an earlier snapshot put there, and no ref has kept since."""


class _Tree(Struct):
    id: str
    content: bytes
    folders: list["_Tree"]
    files: list[str]


def add(files: Folder, unread: set[str], pack: objects.Pack, checker: Checker) -> str:
    """Puts the trees that the store does not have into the pack. Where it has one, it has all that is in it; elsewhere
    it is asked for the files that were not read again."""
    top = _encoded(files, pack.algorithm)
    doubtful: set[str] = set()
    level = [top]
    while level:
        missing = set(checker.missing([tree.id for tree in level]))
        # Of the empty tree git says that it is there, even where it is not.
        new = [tree for tree in level if tree.id in missing or not tree.content]
        for tree in new:
            pack.add("tree", tree.content)
            doubtful.update(unread.intersection(tree.files))
        level = [folder for tree in new for folder in tree.folders]
    if checker.missing(list(doubtful)):
        raise Forgotten
    return top.id


def _encoded(folder: Folder, algorithm: str) -> _Tree:
    entries: dict[bytes, Entry] = {}
    folders: list[_Tree] = []
    for name, inside in folder.items():
        if isinstance(inside, Entry):
            entries[os.fsencode(name)] = inside
        else:
            folders.append(_encoded(inside, algorithm))
            entries[os.fsencode(name)] = Entry(objects.FOLDER, folders[-1].id)
    content = objects.encode_tree(entries)
    files = [entry.id for entry in entries.values() if entry.mode != objects.FOLDER]
    return _Tree(objects.object_id(algorithm, "tree", content), content, folders, files)
