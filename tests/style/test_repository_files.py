"""The files for contributors agree with the repository: links, named paths, and the commands of CI and of the hooks."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LINKED = ["README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md", "docs/dependencies.md"]
MAINTAINERS = ["AGENTS.md", "CONTRIBUTING.md", "docs/dependencies.md", "docs/develop/*.md"]
FOLDERS = ("src/", "tests/", "docs/", "documents/", "web/", "bench/", ".github/", ".ci/")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([\w./*{},-]+)`")


def load_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def list_documents(*patterns: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern))


def list_anchors(document: Path) -> set[str]:
    """Returns the anchors of a document's headings, as repository sites make them."""
    text = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*LINKED, *list_documents("docs/develop/*.md")])
def test_links_lead_to_files_and_headings(document: str) -> None:
    folder = (ROOT / document).parent
    broken = []
    for link in LINK.findall((ROOT / document).read_text("utf-8")):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        file = folder / target if target else ROOT / document
        if not file.exists() or (anchor and anchor not in list_anchors(file)):
            broken.append(link)
    assert broken == []


def list_named_paths(text: str) -> Iterator[str]:
    """Yields the paths in code spans, relative to the repository. Other relative paths are below `src/switchtower`."""
    for span in CODE.findall(text):
        if "/" not in span or span.startswith(("/", "~", "ws/")) or not re.search(r"[\w}]\.(?:py|md|toml|tsv|yml|sql)$|/$", span):
            continue
        for path in _expand(span):
            yield path if path.startswith(FOLDERS) or (ROOT / path).exists() else f"src/switchtower/{path}"


def _expand(span: str) -> list[str]:
    choice = re.search(r"\{([^}]+)\}", span)
    return [span.replace(choice[0], one) for one in choice[1].split(",")] if choice else [span]


def test_paths_in_the_documents_for_maintainers_exist() -> None:
    missing = set()
    for document in list_documents(*MAINTAINERS):
        if document != "docs/develop/map.md":
            text = (ROOT / document).read_text("utf-8")
            missing |= {path for path in list_named_paths(text) if not _exists(path)}
    built_or_placeholder = {path for path in missing if "web_dist" in path or re.search(r"/[A-Z]{4,}\b", path)}
    assert sorted(missing - built_or_placeholder) == []


def _exists(path: str) -> bool:
    return any(True for _ in ROOT.glob(path)) if "*" in path else (ROOT / path).exists()


def test_ci_runs_the_same_script_as_a_developer_on_every_supported_python() -> None:
    job = load_yaml(".github/workflows/ci.yml")["jobs"]["ci"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert job["env"]["PYTHON"] == "python${{ matrix.python }}", "the Makefile's variable"
    assert ".ci/run" in [step.get("run") for step in job["steps"]]


def test_hooks_use_the_tools_of_the_environment_and_no_remote_repository() -> None:
    repositories = load_yaml(".pre-commit-config.yaml")["repos"]
    assert [one["repo"] for one in repositories] == ["local"]
    for hook in repositories[0]["hooks"]:
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")


def test_hooks_run_what_make_check_runs() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").split("\ncheck:")[1].split("\n\n")[0]
    commands = re.findall(r"\$\(BIN\)/(\S+(?: -m \S+)?)", recipe)
    entries = " ".join(hook["entry"] for hook in load_yaml(".pre-commit-config.yaml")["repos"][0]["hooks"])
    assert [command for command in commands if f".venv/bin/{command}" not in entries] == []


@pytest.mark.parametrize("form", list_documents(".github/ISSUE_TEMPLATE/*.yml"))
def test_issue_forms_are_well_formed(form: str) -> None:
    loaded = load_yaml(form)
    if form.endswith("config.yml"):
        assert loaded["contact_links"]
        return
    assert loaded["name"]
    assert loaded["description"]
    ids = [field["id"] for field in loaded["body"] if field["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    assert all(field["attributes"]["label"] for field in loaded["body"] if field["type"] != "markdown")
