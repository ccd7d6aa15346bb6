"""The map from document sections to files is complete, names files that exist, and is committed as it is generated."""

import pytest
from tests.conformance.section_map import DOCUMENTS, ROOT, SOURCE, list_requirements, read_sources, render_map


@pytest.mark.parametrize("protocol", DOCUMENTS)
def test_every_topic_of_the_manifest_has_its_source_files(protocol: str) -> None:
    topics = {one.id.split(":")[1] for one in list_requirements(protocol)}
    assert set(read_sources()[protocol]) == topics


@pytest.mark.parametrize("protocol", DOCUMENTS)
def test_every_source_file_exists(protocol: str) -> None:
    named = {path for paths in read_sources()[protocol].values() for path in paths}
    assert sorted(path for path in named if not (SOURCE / path).is_file()) == []


def test_every_manifest_is_in_the_map() -> None:
    manifests = {path.stem for path in (ROOT / "tests/conformance/requirements").glob("*.py")} - {"requirement"}
    assert set(DOCUMENTS) == manifests == set(read_sources())


def test_the_committed_map_is_the_generated_one() -> None:
    committed = (ROOT / "docs" / "develop" / "map.md").read_text("utf-8")
    assert committed == render_map(), "run `make map` and commit what it wrote"
