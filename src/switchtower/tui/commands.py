"""Runs the slash commands: each one sends the daemon a request and shows the result.

`/export` runs the command `tower export`, so that the format of exported files is decided in one place.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs
from rich.text import Text

from switchtower import config
from switchtower.client import discovery, errors, workspace
from switchtower.config import POLICIES
from switchtower.presentation import safe_text, session_details, transcript
from switchtower.protocols.push import extension_messages
from switchtower.tui import preferences
from switchtower.tui.paint import palette
from switchtower.tui.screens.dialogs import Choice, ConfirmScreen, PickerScreen, TextPromptScreen, TextViewerScreen
from switchtower.tui.state import input, session_rows

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


_SUFFIXES = {"markdown": ".md", "html": ".html", "jsonl": ".jsonl"}
_TIMEOUT_S = 300.0


def parse_export_request(text: str) -> tuple[str, str]:
    """Parses the format and the file; the user may name either, both or none."""
    first, _, rest = text.strip().partition(" ")
    if first in input.FORMATS:
        return first, rest.strip()
    by_suffix = {suffix: form for form, suffix in _SUFFIXES.items()}
    return by_suffix.get(Path(text).suffix.lower(), input.FORMATS[0]), text.strip()


def find_free_path(root: str, session_id: str, form: str) -> Path:
    """Returns a path in the folder at which no file exists yet."""
    stem, suffix = f"session-{session_id[-6:].lower()}", _SUFFIXES[form]
    names = (f"{stem}{f'-{number}' if number else ''}{suffix}" for number in range(1_000))
    return next(path for path in (Path(root, name) for name in names) if not path.exists())


def _resolve_export_path(root: str, named: str) -> Path:
    """Resolves a file name relative to the session's folder; absolute names stay absolute."""
    return Path(root, Path(named).expanduser())


async def export_session(settings: config.Settings, session_id: str, text: str, *, root: str) -> Path:
    """Raises `ClientError` with the error message of the export command."""
    form, named = parse_export_request(text)
    path = _resolve_export_path(root, named) if named else find_free_path(root, session_id, form)
    command = [sys.executable, "-P", "-m", "switchtower", "export", session_id, "--format", form, "-o", str(path)]
    home = {} if settings.home is None else {"TOWER_HOME": str(settings.home)}
    environment = {**os.environ, **home, "TOWER_SOCKET": str(discovery.locate_socket(settings)), "NO_COLOR": "1"}

    def export() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S)  # noqa: S603

    try:
        ended = await asyncio.to_thread(export)
    except (OSError, subprocess.TimeoutExpired, ValueError) as problem:
        raise errors.ClientError(f"the session was not exported: {problem}", hint=f"try `tower export {session_id}`") from None
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip().removeprefix("tower: ")
        raise errors.ClientError(said[-1_000:] or f"the export ended with {ended.returncode}")
    return path


Work = Coroutine[Any, Any, None]


class SlashCommandRunner:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._sync_handlers: dict[str, Callable[[str], Any]] = {
            "help": lambda rest: app.action_help(),
            "inbox": lambda rest: app.action_inbox(),
            "sessions": lambda rest: app.action_sessions(),
            "cancel": lambda rest: app.action_cancel(),
            "exit": lambda rest: app.action_leave(),
            "copy": lambda rest: self._copy(),
            "theme": self._theme,
        }
        self._async_handlers: dict[str, Callable[[str], Work]] = {
            "new": self._new,
            "model": self._model,
            "provider": self._provider,
            "policy": self._policy,
            "thinking": self._thinking,
            "preset": self._preset,
            "session": self._session,
            "skills": self._skills,
            "exec": self._exec,
            "queue": self._queue,
            "undo": self._undo,
            "redo": self._redo,
            "diff": self._diff,
            "compact": self._compact,
            "fork": self._fork,
            "rename": self._rename,
            "delete": self._delete,
            "search": self._search,
            "export": self._export,
        }

    def run(self, slash_input: input.SlashInput) -> None:
        if (plain := self._sync_handlers.get(slash_input.command.name)) is not None:
            plain(slash_input.rest)
        else:
            self._app.run_in_background(self._async_handlers[slash_input.command.name](slash_input.rest))

    def list_values(self, command: str) -> Sequence[input.SlashOption]:
        """Returns the arguments that can be offered for a command, as far as they are known now."""
        match command:
            case "model" | "provider":
                return [input.SlashOption(one.name, _describe_model(one)) for one in self._app.models if one.usable]
            case "session":
                return [input.SlashOption(row.name, row.state_label) for row in self._app.rows]
        return ()

    def run_list_action(self, what: str, session_id: str | None) -> None:
        """Runs an action of the session list on the session that is selected there."""
        match what:
            case "new":
                self._app.opener.start_new()
            case "rename" if session_id is not None:
                self._app.run_in_background(self._rename_one(session_id, ""))
            case "fork" if session_id is not None:
                self._app.run_in_background(self._fork_one(session_id, ""))
            case "delete" if session_id is not None:
                self._app.run_in_background(self._delete_one(session_id))

    # Sessions

    def _require_session(self) -> str | None:
        """Returns the id of the open session; shows a notice and returns None when no session is open."""
        if self._app.session is None:
            self._app.show_notice("there is no session yet: it begins with your first message")
            return None
        return self._app.session.session_id

    async def _new(self, folder: str) -> None:
        self._app.opener.start_new(workspace.resolve_folder(folder) if folder else None)

    async def _ask_text(self, title: str, value: str = "") -> str:
        asked = await self._app.push_screen_wait(TextPromptScreen(title, value=value))
        return asked or ""

    async def _session(self, wanted: str) -> None:
        app = self._app
        if wanted:
            row = session_rows.find_row(app.rows, wanted)
            if row is None:
                app.show_notice(f"no single session is called `{wanted}`; hint: choose one in the list")
                app.action_sessions()
            else:
                await app.opener.open_session(row.session_id)
        elif (here := self._require_session()) is not None:
            lines = session_details.list_brief_details(await app.feed.get_session(here), now_ms=app.now_ms())
            app.push_screen(TextViewerScreen("This session", [_format_pair(name, value) for name, value in lines]))

    async def _rename(self, title: str) -> None:
        if (here := self._require_session()) is not None:
            await self._rename_one(here, title)

    async def _rename_one(self, session_id: str, title: str) -> None:
        row = next((row for row in self._app.rows if row.session_id == session_id), None)
        if not title:
            title = await self._ask_text("What shall it be called?", value=safe_text.to_safe_line(row.title) if row else "")
        if title:
            await self._app.feed.configure(session_id, title=title)

    async def _fork(self, title: str) -> None:
        if (here := self._require_session()) is not None:
            await self._fork_one(here, title)

    async def _fork_one(self, session_id: str, title: str) -> None:
        forked = await self._app.feed.fork_session(session_id)
        if title:
            await self._app.feed.configure(forked, title=title)
        await self._app.opener.open_session(forked)

    async def _delete(self, rest: str) -> None:
        if (here := self._require_session()) is not None:
            await self._delete_one(here)

    async def _delete_one(self, session_id: str) -> None:
        row = next((row for row in self._app.rows if row.session_id == session_id), None)
        name = safe_text.to_safe_line(row.name if row else session_id)
        question = f"Delete “{name}” for good? What it said and did cannot be read again"
        if not await self._app.push_screen_wait(ConfirmScreen(question, yes="delete it")):
            return
        await self._app.feed.delete_session(session_id)
        if self._app.session is not None and self._app.session.session_id == session_id:
            self._app.opener.start_new()
        self._app.feed.refresh_soon()

    async def _search(self, text: str) -> None:
        asked = text or await self._ask_text("Find what, in all sessions?")
        if not asked:
            return
        found = await self._app.feed.search(asked)
        if not found:
            self._app.show_notice(f"nobody said `{asked}`")
            return
        choices = [Choice(str(at), one.title or f"…{one.sessionId[-6:]}", one.snippet) for at, one in enumerate(found)]
        chosen = await self._app.push_screen_wait(PickerScreen(f"“{asked}” was found in", choices))
        if chosen is not None:
            await self._app.opener.open_session(found[int(chosen)].sessionId)

    async def _export(self, rest: str) -> None:
        if (here := self._require_session()) is not None:
            path = await export_session(self._app.settings, here, rest, root=self._app.root)
            self._app.show_notice(f"written to {path}")

    # Session settings

    async def _configure(self, **changes: Any) -> None:
        """Changes the open session's settings, or those of the draft if no session is open."""
        app = self._app
        if app.session is None:
            app.draft = structs.replace(app.draft, **changes)
            app.status.refresh_all()
        else:
            await app.feed.configure(app.session.session_id, **changes)

    async def _model(self, wanted: str) -> None:
        app = self._app
        app.models = await app.feed.list_models()
        if not wanted:
            usable_first = sorted(app.models, key=lambda one: not one.usable)
            choices = [Choice(one.name, one.name, _describe_model(one), one.usable) for one in usable_first]
            about = app.session.info if app.session is not None else None
            current = about.provider if about is not None else app.draft.provider
            chosen = await app.push_screen_wait(PickerScreen("Which model?", choices, current=current))
            if chosen is None:
                return
            wanted = chosen
        provider, model = _split_model(wanted, app.models)
        if provider is not None:
            await self._configure(provider=provider, model=model)
        elif app.session is not None:
            await self._configure(model=model)  # another model of the same provider
        else:
            app.show_notice(f"no model is called `{wanted}`; hint: `/model` lists them")

    async def _preset(self, wanted: str) -> None:
        app = self._app
        presets = await app.feed.list_presets(app.root)
        if not presets:
            app.show_notice("no preset here; hint: put one into .tower/presets")
            return
        about = {one.name: one.description if one.usable else one.reason for one in presets}
        choices = [Choice(one.name, one.name, about[one.name], one.usable) for one in presets]
        chosen = await self._choose_value("Begin as which preset says?", choices, wanted)
        if chosen is not None:
            if app.session is not None:
                app.opener.start_new(app.session.info.worktreeOf or app.root)
            app.draft = app.draft.with_preset(chosen)
            app.status.refresh_all()

    async def _provider(self, wanted: str) -> None:
        await self._model(wanted)

    async def _policy(self, wanted: str) -> None:
        about = {
            "read-only": "nothing is changed, nothing is run",
            "ask": "asks before it changes or runs anything",
            "auto": "changes files by itself, asks before it runs commands",
            "yolo": "asks nobody about anything",
        }
        choices = [Choice(name, name, about.get(name, "")) for name in POLICIES]
        chosen = await self._choose_value("What may happen unasked?", choices, wanted)
        if chosen is not None:
            await self._configure(policy=cast(Any, chosen))

    async def _thinking(self, wanted: str) -> None:
        chosen = await self._choose_value("How long shall it think?", [Choice(name, name) for name in input.THINKING], wanted)
        if chosen is not None:
            await self._configure(thinking=cast(Any, chosen))

    async def _choose_value(self, title: str, choices: list[Choice], wanted: str) -> str | None:
        if not wanted:
            return await self._app.push_screen_wait(PickerScreen(title, choices))
        if wanted in [one.value for one in choices]:
            return wanted
        self._app.show_notice(f"`{wanted}` is none of {', '.join(one.value for one in choices)}")
        return None

    # Runs

    async def _queue(self, text: str) -> None:
        if (here := self._require_session()) is not None and text:
            await self._app.feed.queue_message(here, text, "follow_up")

    async def _undo(self, rest: str) -> None:
        if (here := self._require_session()) is not None:
            await self._app.feed.undo(here)

    async def _redo(self, rest: str) -> None:
        if (here := self._require_session()) is not None:
            await self._app.feed.undo(here, redo=True)

    async def _compact(self, instructions: str) -> None:
        if (here := self._require_session()) is not None:
            await self._app.feed.compact(here, instructions)

    async def _diff(self, rest: str) -> None:
        if (here := self._require_session()) is not None:
            diff = await self._app.feed.get_diff(here)
            if diff.strip():
                self._app.push_screen(
                    TextViewerScreen("What the session has changed", palette.paint_diff(safe_text.escape_prose(diff)))
                )
            else:
                self._app.show_notice("the session has changed nothing")

    async def _exec(self, command: str) -> None:
        app = self._app
        if not command:
            command = await self._ask_text("Run which program?")
        if command:
            size = app.main.transcript.size
            request = app.draft.build_request(
                workspace.describe_workspace(app.root), command=command, size=(max(20, size.width), max(5, size.height))
            )
            await app.opener.open_session(await app.feed.start_session(request))

    async def _skills(self, rest: str) -> None:
        app = self._app
        templates = await app.feed.list_templates(app.root)
        if not templates:
            app.show_notice("no skill or prompt here; hint: put one into .tower/skills or .tower/prompts")
            return
        choices = [Choice(one.name, f"/{one.name}", f"{one.kind}: {one.description}") for one in templates]
        chosen = await app.push_screen_wait(PickerScreen("Skills and prompts", choices))
        if chosen is not None:
            app.main.composer.set_text(f"/{chosen} ")

    # Theme

    def _theme(self, wanted: str) -> None:
        app = self._app
        dark = wanted == "dark" or (wanted != "light" and not app.current_theme.dark)
        app.theme = (preferences.DARK if dark else preferences.LIGHT).name
        preferences.save_theme(app.settings, app.theme)

    def _copy(self) -> None:
        conversation = self._app.session
        answers = (
            [one for one in conversation.transcript.blocks if isinstance(one, transcript.AnswerBlock)] if conversation else []
        )
        if not answers:
            self._app.show_notice("there is no answer yet")
            return
        self._app.copy_to_clipboard(answers[-1].text)
        self._app.show_notice("the last answer is in the clipboard, if this terminal has one")


def _describe_model(one: extension_messages.ModelListing) -> str:
    if not one.usable:
        return one.reason.partition("; hint:")[0]
    parts = [one.model or "", "default" if one.isDefault else ""]
    if one.priceIn is not None and one.priceOut is not None:
        parts.append(f"${one.priceIn:g} in, ${one.priceOut:g} out per million")
    return ", ".join(part for part in parts if part)


def _split_model(wanted: str, models: Sequence[extension_messages.ModelListing]) -> tuple[str | None, str | None]:
    """Returns a provider and a model: a listed name optionally followed by one of its models, or None and the whole text as a
    model name."""
    name, _, model = wanted.partition(" ")
    for one in models:
        if name in (one.name, one.provider):
            return one.name, model.strip() or None
    near = [one for one in models if one.usable and wanted.casefold() in f"{one.name} {one.model or ''}".casefold()]
    if len(near) == 1:
        return near[0].name, None
    return None, wanted


def _format_pair(name: str, value: str) -> Text:
    return Text.assemble((f"{name:<18} ", "dim"), safe_text.escape_prose(value).replace("\n", "\n" + " " * 19))
