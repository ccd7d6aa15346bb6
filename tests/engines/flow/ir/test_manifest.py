"""Manifests: real files in a folder."""

import os
from pathlib import Path

import msgspec
import pytest
from tests.engines.flow.ir.documents import Document, make_document, make_edge, make_node

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import manifest

FLOW: Document = make_document(
    [make_node("a", "http.get"), make_node("end", "finish")], [make_edge("a", "end")], {"x": {"type": "string"}}
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A manifest with the flow `demo`."""
    folder = tmp_path / "out"
    manifest.replace_file(folder / "flows" / "demo.ir.json", msgspec.json.encode(FLOW))
    manifest.write_manifest(folder / "manifest.json", [manifest.make_entry(ir.parse_flow(FLOW), "flows/demo.ir.json")])
    return folder / "manifest.json"


def change_entry(path: Path, **changes: object) -> manifest.FlowManifest:
    """The manifest with other words in its entry."""
    (entry,) = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode([entry | changes]))
    return manifest.read_manifest(path)


def get_refusal(found: manifest.FlowManifest, name: str = "demo") -> str:
    with pytest.raises(manifest.InvalidManifest) as caught:
        found.load(name)
    return str(caught.value)


@pytest.mark.requirement("rep:manifest:form", "rep:manifest:hash")
def test_what_was_written_is_read_and_its_flow_loaded(path: Path) -> None:
    assert msgspec.json.decode(path.read_bytes()) == [
        {
            "name": "demo",
            "source_file": "demo.yaml",
            "policyRef": "default",
            "step_kinds": ["finish", "http.get"],
            "inputs_schema_hash": "sha256:ee97661ad7d47fb22b999ee9151c67333d56b45c4b075ebe0e81c04ee179b1d1",
            "ir_path": "flows/demo.ir.json",
        }
    ]
    loaded = manifest.read_manifest(path).load("demo")
    assert loaded.document == FLOW
    assert loaded.flow == ir.parse_flow(FLOW)
    assert sorted(each.name for each in path.parent.iterdir()) == ["flows", "manifest.json"]


def test_kinds_that_only_direct_a_flow_may_be_missing_from_a_manifest(path: Path) -> None:
    assert change_entry(path, step_kinds=["http.get"], source_file=None, policyRef="", extra=1).load("demo").flow.name == "demo"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"step_kinds": ["http.get", "shell"]}, "its step kinds are not those of the manifest"),
        ({"inputs_schema_hash": "sha256:00"}, "its inputs are not those that the manifest has the hash of"),
    ],
)
def test_a_flow_that_is_not_what_the_manifest_says_is_refused(path: Path, changes: dict[str, object], reason: str) -> None:
    assert get_refusal(change_entry(path, **changes)) == f"flow `demo`: {reason}; hint: compile it again"


def test_a_flow_of_another_name_in_the_file_is_refused(path: Path) -> None:
    assert "its file holds the flow `demo`" in get_refusal(change_entry(path, name="other"), "other")


def test_an_unknown_name_is_answered_with_the_known_ones(path: Path) -> None:
    assert get_refusal(manifest.read_manifest(path), "nope") == "the manifest has no flow `nope`; hint: it has `demo`"


@pytest.mark.requirement("rep:manifest:relative")
@pytest.mark.parametrize("ir_path", ["/etc/passwd", "../secret.json", "flows/../../secret.json", "", ".", "a\0b"])
def test_a_path_out_of_the_folder_is_never_opened(path: Path, ir_path: str) -> None:
    (path.parent.parent / "secret.json").write_bytes(msgspec.json.encode(FLOW))
    assert "not a path inside the manifest's folder" in get_refusal(change_entry(path, ir_path=ir_path))


@pytest.mark.requirement("rep:manifest:relative")
def test_a_link_out_of_the_folder_is_never_followed(path: Path) -> None:
    (path.parent.parent / "secret.json").write_bytes(msgspec.json.encode(FLOW))
    (path.parent / "link.json").symlink_to(path.parent.parent / "secret.json")
    assert "leads out of the manifest's folder" in get_refusal(change_entry(path, ir_path="link.json"))


def test_a_link_inside_the_folder_is_fine(path: Path) -> None:
    (path.parent / "link.json").symlink_to("flows/demo.ir.json")
    assert change_entry(path, ir_path="link.json").load("demo").flow.name == "demo"


def test_what_is_no_file_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path.parent / "pipe")
    (path.parent / "loop").symlink_to("loop")
    assert get_refusal(change_entry(path, ir_path="pipe")) == "`pipe` is not a file"
    assert get_refusal(change_entry(path, ir_path="flows")) == "`flows` is not a file"
    assert "cannot be read" in get_refusal(change_entry(path, ir_path="loop"))
    assert get_refusal(change_entry(path, ir_path="nothing")) == "`nothing` cannot be read: No such file or directory"


def test_a_file_that_is_no_flow_says_what_is_wrong(path: Path) -> None:
    (path.parent / "flows" / "demo.ir.json").write_bytes(b"{}")
    with pytest.raises(ir.InvalidFlow):
        manifest.read_manifest(path).load("demo")
    for rubbish in (b"\xff\xfe", b"{", b"[" * 100_000):
        (path.parent / "flows" / "demo.ir.json").write_bytes(rubbish)
        assert "`flows/demo.ir.json` is no JSON" in get_refusal(manifest.read_manifest(path))


def test_a_file_without_end_is_read_only_so_far(path: Path) -> None:
    with (path.parent / "huge").open("wb") as file:
        file.truncate(2**40)
    assert get_refusal(change_entry(path, ir_path="huge")) == "`huge` is larger than 16 MiB"


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'[{"name": "x"}]', b"\xff", b"[" * 100_000, b"null"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(manifest.InvalidManifest, match="is no manifest"):
        manifest.read_manifest(tmp_path / "manifest.json")


def test_two_flows_of_one_name_are_refused(path: Path) -> None:
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) * 2))
    with pytest.raises(manifest.InvalidManifest, match="two flows with the name `demo`"):
        manifest.read_manifest(path)


def test_an_entry_that_leads_outside_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(manifest.InvalidManifest):
        manifest.write_manifest(tmp_path / "manifest.json", [manifest.make_entry(ir.parse_flow(FLOW), "../x.json")])
    assert list(tmp_path.iterdir()) == []
