"""Git's own forms, made by us and read by git; and read by us, whoever made them."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.git.repositories import make_repository, run_git

from switchtower.tools.snapshots import objects
from switchtower.tools.snapshots.objects import TreeEntry

IDS = st.binary(min_size=20, max_size=20).map(bytes.hex)
NAMES = st.binary(min_size=1, max_size=20).filter(objects.is_plain_name)
MODES = st.sampled_from([objects.FILE, objects.PROGRAM, objects.LINK, objects.FOLDER])


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_git_reads_our_packs(tmp_path: Path, algorithm: str) -> None:
    folder = make_repository(tmp_path / "repository", None, f"--object-format={algorithm}")
    pack = objects.ObjectPack(algorithm, io.BytesIO())
    # Around the places where one more byte is needed to say how long it is.
    sizes = [0, 1, 15, 16, 17, 2046, 2047, 2048, 2049, 262_143, 262_144, 5_000_000]
    blobs = {pack.add("blob", bytes(size)): size for size in sizes}
    tree = pack.add("tree", objects.encode_tree({str(size).encode(): TreeEntry(objects.FILE, id) for id, size in blobs.items()}))
    assert pack.add("blob", b"") in blobs  # a second time it is not added again

    run_git(folder, "index-pack", "--stdin", "--strict", input=pack.finish().read())
    assert {id: int(run_git(folder, "cat-file", "-s", id)) for id in blobs} == blobs
    assert run_git(folder, "ls-tree", "--name-only", tree).split() == sorted(map(str, sizes))


@given(st.dictionaries(NAMES, st.builds(TreeEntry, MODES, IDS), max_size=8))
def test_a_tree_comes_back_as_it_was(entries: dict[bytes, TreeEntry]) -> None:
    content = objects.encode_tree(entries)
    assert objects.decode_tree(content, objects.compute_object_id("sha1", "tree", content)) == entries


def test_folders_are_sorted_as_git_sorts_them(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "repository", {"a/x": "x", "a.b": "x", "a0": "x", "a-": "x"})
    listed = run_git(folder, "ls-tree", "HEAD").splitlines()
    entries = {line.split("\t")[1].encode(): TreeEntry(int(line.split()[0], 8), line.split()[2]) for line in listed}
    expected = run_git(folder, "rev-parse", "HEAD^{tree}").strip()
    assert objects.compute_object_id("sha1", "tree", objects.encode_tree(entries)) == expected


@given(st.binary(max_size=60))
def test_rubbish_is_no_tree(content: bytes) -> None:
    id = objects.compute_object_id("sha1", "tree", content)
    try:
        entries = objects.decode_tree(content, id)
    except objects.DamagedObject:
        return
    assert all(objects.is_plain_name(name) for name in entries)


@pytest.mark.parametrize("name", [b"", b".", b"..", b".git", b".GIT", b"a/b", b"../x"])
def test_a_tree_with_names_that_lead_elsewhere_is_refused(name: bytes) -> None:
    content = objects.encode_tree({name: TreeEntry(objects.FILE, "0" * 40)})
    with pytest.raises(objects.DamagedObject):
        objects.decode_tree(content, objects.compute_object_id("sha1", "tree", content))


@pytest.mark.parametrize("mode", [b"100664", b"160000", b"040000", b"0", b""])
def test_a_tree_with_anything_but_files_links_and_folders_is_refused(mode: bytes) -> None:
    content = mode + b" x\0" + bytes(20)
    with pytest.raises(objects.DamagedObject):
        objects.decode_tree(content, objects.compute_object_id("sha1", "tree", content))


def test_a_tree_that_is_cut_short_is_refused() -> None:
    content = objects.encode_tree({b"x": TreeEntry(objects.FILE, "0" * 40)})
    for length in range(1, len(content)):
        with pytest.raises(objects.DamagedObject):
            objects.decode_tree(content[:length], objects.compute_object_id("sha1", "tree", content[:length]))
    with pytest.raises(objects.DamagedObject):
        objects.decode_tree(content, "0" * 40)
