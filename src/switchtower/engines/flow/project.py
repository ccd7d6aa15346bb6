"""The one runtime of a project, as `tm/config/runtime.yaml` configures it. Reads that file, and starts nothing."""

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

PLACE = Path("tm/config/runtime.yaml")
ENGINES = ("python", "proc")
_AGAIN = "hint: run `tm init` again and choose the runtime"
_LARGEST = 64 * 1024
_FAMILIES = {"py": "python", "cpython": "python", "rs": "rust", "golang": "go", "c++": "c", "cpp": "c", "js": "node"}
_FAMILIES |= {"javascript": "node", "typescript": "node", "ts": "node", "nodejs": "node"}


class ProjectRuntimeError(Exception):
    """The project's runtime cannot be used; the text gives the cause and the remedy."""

    exit_code = 2
    """No runtime has been started yet."""


class LanguageMismatch(ProjectRuntimeError):
    """rep 9: runtime and plugins are of different languages, which counts as a validation error."""

    exit_code = 3


class ProjectRuntime(Struct, frozen=True, kw_only=True):
    engine: str
    language: str
    plugins_language: str
    executor_path: str | None
    """An absolute path. None means the bundled runtime."""

    def check_family(self) -> None:
        """Raises `LanguageMismatch` unless the plugins are of the runtime's language family."""
        if language_family(self.language) != language_family(self.plugins_language):
            raise LanguageMismatch(
                f"the runtime is of the language `{self.language}` and the plugins are of `{self.plugins_language}`; "
                "hint: run `tm init` again with the runtime that fits the plugins"
            )


def language_family(language: str) -> str:
    """Returns the family: `Python3.11`, `py` and `python` are one."""
    name = re.sub(r"[\d.]+$", "", language.strip().lower()).strip()
    return _FAMILIES.get(name, name)


def find_project_file(start: Path) -> Path | None:
    """Returns the configuration file of the project that this folder belongs to."""
    folder = start.absolute()
    return next((place for above in (folder, *folder.parents) if (place := above / PLACE).is_file()), None)


def read_project_runtime(path: Path) -> ProjectRuntime:
    """Raises `ProjectRuntimeError`. `check_family` compares the languages separately, because an override may ignore them."""
    settings = _read_mapping(path)
    engine = _get_text_setting(settings, "engine", path)
    if engine not in ENGINES:
        raise ProjectRuntimeError(f"`engine` in {path} is `{engine[:100]}` and not one of `python`, `proc`; {_AGAIN}")
    executor = _get_text_setting(settings, "executor_path", path, optional=True)
    if not executor and engine == "proc":
        raise ProjectRuntimeError(f"`executor_path` is missing in {path}, and `proc` runs nothing without it; {_AGAIN}")
    language = _get_text_setting(settings, "language", path, optional=engine == "python") or "python"
    return ProjectRuntime(
        engine=engine,
        language=language,
        plugins_language=_get_text_setting(settings, "plugins_language", path, optional=True) or language,
        executor_path=str(_find_root(path) / Path(executor).expanduser()) if executor else None,
    )


def _read_mapping(path: Path) -> dict[str, Any]:
    import yaml

    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ProjectRuntimeError(f"{path} is larger than {_LARGEST} bytes; {_AGAIN}")
        document = yaml.safe_load(content.decode())
    except FileNotFoundError:
        raise ProjectRuntimeError(f"there is no {path}; hint: run `tm init` in the project's folder") from None
    except OSError as error:
        raise ProjectRuntimeError(f"{path} cannot be read: {error.strerror}; hint: see whose file it is") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ProjectRuntimeError(
            f"{path}{where} is not YAML: {getattr(error, 'problem', None) or 'it cannot be read'}; {_AGAIN}"
        ) from None
    runtime = document.get("runtime") if isinstance(document, dict) else None
    if not isinstance(runtime, dict):
        raise ProjectRuntimeError(f"{path} has no table `runtime`; {_AGAIN}")
    return runtime


def _get_text_setting(settings: dict[str, Any], name: str, path: Path, *, optional: bool = False) -> str:
    value = settings.get(name)
    if value is None or value == "":
        if optional:
            return ""
        raise ProjectRuntimeError(f"`{name}` is missing in {path}; {_AGAIN}")
    if not isinstance(value, str) or "\0" in value:
        raise ProjectRuntimeError(f"`{name}` in {path} is not a text; {_AGAIN}")
    return value


def _find_root(path: Path) -> Path:
    """Returns the project's folder; paths in the file are relative to it."""
    folder = path.absolute().parent
    return folder.parent.parent if folder.parts[-2:] == PLACE.parent.parts else folder
