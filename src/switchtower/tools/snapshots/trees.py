"""From folders of entries to git's trees, and into a pack as far as the store does not have them."""

import os
from typing import Union

from msgspec import Struct

from switchtower.tools.snapshots import objects
from switchtower.tools.snapshots.objects import TreeEntry
from switchtower.tools.snapshots.reading import ObjectChecker

FolderTree = dict[str, Union[TreeEntry, "Folder"]]


class MissingObject(Exception):
    """The store has lost an object that an earlier snapshot put there, and no ref has kept since."""


class _Tree(Struct):
    id: str
    content: bytes
    folders: list["_Tree"]
    files: list[str]


def add_trees(files: FolderTree, unread: set[str], pack: objects.ObjectPack, checker: ObjectChecker) -> str:
    """Puts the trees that the store does not have into the pack. Where it has one, it has all that is in it; elsewhere
    it is asked for the files that were not read again."""
    top = _encode_folder(files, pack.algorithm)
    doubtful: set[str] = set()
    level = [top]
    while level:
        missing = set(checker.find_missing([tree.id for tree in level]))
        # Of the empty tree git says that it is there, even where it is not.
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
            entries[os.fsencode(name)] = TreeEntry(objects.FOLDER, folders[-1].id)
    content = objects.encode_tree(entries)
    files = [entry.id for entry in entries.values() if entry.mode != objects.FOLDER]
    return _Tree(objects.compute_object_id(algorithm, "tree", content), content, folders, files)
