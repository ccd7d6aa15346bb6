"""`runtime.yaml`: what it says, what is wrong with it, and whether runtime and plugins are of one family."""

from pathlib import Path

import pytest

from switchtower.engines.flow import project


def write_project(folder: Path, text: str | bytes) -> Path:
    place = folder / project.PLACE
    place.parent.mkdir(parents=True)
    place.write_bytes(text.encode() if isinstance(text, str) else text)
    return place


@pytest.mark.requirement("rep:project:file")
def test_a_project_names_its_runtime_by_a_path_from_its_own_folder(tmp_path: Path) -> None:
    place = write_project(
        tmp_path, "runtime:\n  engine: proc\n  language: rust\n  plugins_language: rust\n  executor_path: bin/runtime\n"
    )

    assert project.read_project_runtime(place) == project.ProjectRuntime(
        engine="proc", language="rust", plugins_language="rust", executor_path=str(tmp_path / "bin/runtime")
    )


@pytest.mark.requirement("rep:project:file")
def test_the_runtime_that_comes_with_us_needs_no_path(tmp_path: Path) -> None:
    assert project.read_project_runtime(write_project(tmp_path, "runtime: {engine: python}")) == project.ProjectRuntime(
        engine="python", language="python", plugins_language="python", executor_path=None
    )


def test_the_file_is_found_from_any_folder_of_the_project(tmp_path: Path) -> None:
    place = write_project(tmp_path, "runtime: {engine: python}")
    (tmp_path / "flows/daily").mkdir(parents=True)

    assert project.find_project_file(tmp_path / "flows/daily") == place
    assert project.find_project_file(tmp_path) == place


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no table `runtime`"),
        ("runtime: [proc]", "has no table `runtime`"),
        ("runtime: {language: c}", "`engine` is missing"),
        ("runtime: {engine: wasm}", "is `wasm` and not one of `python`, `proc`"),
        ("runtime: {engine: [proc]}", "`engine` in"),
        ("runtime: {engine: proc, language: c}", "`executor_path` is missing"),
        ("runtime: {engine: proc, executor_path: x}", "`language` is missing"),
        ("runtime: {engine: proc, language: 7, executor_path: x}", "is not a text"),
        ('runtime: {engine: python, executor_path: "a\\0b"}', "is not a text"),
        ("runtime:\n  engine: {", "line 2, column 12 is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        ("[" * 5000, "is not YAML"),
        ("a: " + "x" * 70_000, "is larger than 65536 bytes"),
    ],
    ids=range(13),
)
def test_a_file_that_cannot_be_used_says_what_is_wrong_and_what_helps(tmp_path: Path, text: str | bytes, complaint: str) -> None:
    with pytest.raises(project.ProjectRuntimeError) as refused:
        project.read_project_runtime(write_project(tmp_path, text))

    assert complaint in str(refused.value)
    assert "hint: run `tm init` again" in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    assert project.find_project_file(tmp_path / "nowhere") is None
    with pytest.raises(project.ProjectRuntimeError, match="hint: run `tm init` in the project's folder"):
        project.read_project_runtime(tmp_path / project.PLACE)
    with pytest.raises(project.ProjectRuntimeError, match="cannot be read"):
        project.read_project_runtime(tmp_path)


def make_runtime(language: str, plugins: str) -> project.ProjectRuntime:
    return project.ProjectRuntime(engine="proc", language=language, plugins_language=plugins, executor_path="/x")


@pytest.mark.requirement("rep:project:family")
def test_a_runtime_and_plugins_of_two_families_are_a_validation_error() -> None:
    with pytest.raises(project.LanguageMismatch) as refused:
        make_runtime("rust", "c").check_family()

    assert refused.value.exit_code == 3
    assert str(refused.value) == (
        "the runtime is of the language `rust` and the plugins are of `c`; "
        "hint: run `tm init` again with the runtime that fits the plugins"
    )


@pytest.mark.parametrize(("language", "plugins"), [("python", "Python3.11"), ("C", "c++"), ("golang", "go1.22"), ("zig", "Zig")])
def test_names_of_one_family_fit(language: str, plugins: str) -> None:
    make_runtime(language, plugins).check_family()
