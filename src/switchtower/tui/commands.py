"""The slash commands, done: each asks the daemon for one thing and says what came of it."""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs
from rich.text import Text

from switchtower.config import POLICIES
from switchtower.protocols.push import extensions
from switchtower.tui import exporting, place, remembered, themes
from switchtower.tui.paint import diffs
from switchtower.tui.screens.choosing import AskScreen, Choice, ChooseScreen, ConfirmScreen
from switchtower.tui.screens.reading import ReadingScreen
from switchtower.tui.state import blocks, harmless, portrait, roster, slash

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp

Work = Coroutine[Any, Any, None]


class Commands:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._plain: dict[str, Callable[[str], Any]] = {
            "help": lambda rest: app.action_help(),
            "inbox": lambda rest: app.action_inbox(),
            "sessions": lambda rest: app.action_sessions(),
            "cancel": lambda rest: app.action_cancel(),
            "exit": lambda rest: app.action_leave(),
            "copy": lambda rest: self._copy(),
            "theme": self._theme,
        }
        self._asking: dict[str, Callable[[str], Work]] = {
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

    def run(self, typed: slash.Typed) -> None:
        if (plain := self._plain.get(typed.command.name)) is not None:
            plain(typed.rest)
        else:
            self._app.do(self._asking[typed.command.name](typed.rest))

    def values(self, command: str) -> Sequence[slash.Option]:
        """What may stand behind a command, as far as it is known now."""
        match command:
            case "model" | "provider":
                return [slash.Option(one.name, _about_model(one)) for one in self._app.models if one.usable]
            case "session":
                return [slash.Option(row.name, row.word) for row in self._app.rows]
        return ()

    def wish(self, what: str, session_id: str | None) -> None:
        """Of the list: with the session that is picked there."""
        match what:
            case "new":
                self._app.opening.begin_anew()
            case "rename" if session_id is not None:
                self._app.do(self._rename_one(session_id, ""))
            case "fork" if session_id is not None:
                self._app.do(self._fork_one(session_id, ""))
            case "delete" if session_id is not None:
                self._app.do(self._delete_one(session_id))

    # Sessions

    def _here(self) -> str | None:
        """The open session. Says so where there is none."""
        if self._app.open is None:
            self._app.say("there is no session yet: it begins with your first message")
            return None
        return self._app.open.session_id

    async def _new(self, folder: str) -> None:
        self._app.opening.begin_anew(place.root_of(folder) if folder else None)

    async def _asked(self, title: str, value: str = "") -> str:
        asked = await self._app.push_screen_wait(AskScreen(title, value=value))
        return asked or ""

    async def _session(self, wanted: str) -> None:
        app = self._app
        if wanted:
            row = roster.find(app.rows, wanted)
            if row is None:
                app.say(f"no single session is called `{wanted}`; hint: choose one in the list")
                app.action_sessions()
            else:
                await app.opening.show(row.session_id)
        elif (here := self._here()) is not None:
            lines = portrait.of(await app.feed.about(here), now_ms=app.now_ms())
            app.push_screen(ReadingScreen("This session", [_pair(name, value) for name, value in lines]))

    async def _rename(self, title: str) -> None:
        if (here := self._here()) is not None:
            await self._rename_one(here, title)

    async def _rename_one(self, session_id: str, title: str) -> None:
        row = next((row for row in self._app.rows if row.session_id == session_id), None)
        if not title:
            title = await self._asked("What shall it be called?", value=harmless.line(row.title) if row else "")
        if title:
            await self._app.feed.configure(session_id, title=title)

    async def _fork(self, title: str) -> None:
        if (here := self._here()) is not None:
            await self._fork_one(here, title)

    async def _fork_one(self, session_id: str, title: str) -> None:
        forked = await self._app.feed.fork(session_id)
        if title:
            await self._app.feed.configure(forked, title=title)
        await self._app.opening.show(forked)

    async def _delete(self, rest: str) -> None:
        if (here := self._here()) is not None:
            await self._delete_one(here)

    async def _delete_one(self, session_id: str) -> None:
        row = next((row for row in self._app.rows if row.session_id == session_id), None)
        name = harmless.line(row.name if row else session_id)
        question = f"Delete “{name}” for good? What it said and did cannot be read again"
        if not await self._app.push_screen_wait(ConfirmScreen(question, yes="delete it")):
            return
        await self._app.feed.delete(session_id)
        if self._app.open is not None and self._app.open.session_id == session_id:
            self._app.opening.begin_anew()
        self._app.feed.look()

    async def _search(self, text: str) -> None:
        asked = text or await self._asked("Find what, in all sessions?")
        if not asked:
            return
        found = await self._app.feed.search(asked)
        if not found:
            self._app.say(f"nobody said `{asked}`")
            return
        choices = [Choice(str(at), one.title or f"…{one.sessionId[-6:]}", one.snippet) for at, one in enumerate(found)]
        chosen = await self._app.push_screen_wait(ChooseScreen(f"“{asked}” was found in", choices))
        if chosen is not None:
            await self._app.opening.show(found[int(chosen)].sessionId)

    async def _export(self, rest: str) -> None:
        if (here := self._here()) is not None:
            path = await exporting.write(self._app.settings, here, rest, root=self._app.root)
            self._app.say(f"written to {path}")

    # How a session works

    async def _configure(self, **changes: Any) -> None:
        """Before there is a session, how it will begin."""
        app = self._app
        if app.open is None:
            app.draft = structs.replace(app.draft, **changes)
            app.drawing.all()
        else:
            await app.feed.configure(app.open.session_id, **changes)

    async def _model(self, wanted: str) -> None:
        app = self._app
        app.models = await app.feed.models()
        if not wanted:
            usable_first = sorted(app.models, key=lambda one: not one.usable)
            choices = [Choice(one.name, one.name, _about_model(one), one.usable) for one in usable_first]
            about = app.open.about if app.open is not None else None
            current = about.provider if about is not None else app.draft.provider
            chosen = await app.push_screen_wait(ChooseScreen("Which model?", choices, current=current))
            if chosen is None:
                return
            wanted = chosen
        provider, model = _split_model(wanted, app.models)
        if provider is not None:
            await self._configure(provider=provider, model=model)
        elif app.open is not None:
            await self._configure(model=model)  # another one of the same provider
        else:
            app.say(f"no model is called `{wanted}`; hint: `/model` lists them")

    async def _preset(self, wanted: str) -> None:
        app = self._app
        presets = await app.feed.presets(app.root)
        if not presets:
            app.say("no preset here; hint: put one into .tower/presets")
            return
        about = {one.name: one.description if one.usable else one.reason for one in presets}
        choices = [Choice(one.name, one.name, about[one.name], one.usable) for one in presets]
        chosen = await self._chosen("Begin as which preset says?", choices, wanted)
        if chosen is not None:
            if app.open is not None:
                app.opening.begin_anew(app.open.about.worktreeOf or app.root)
            app.draft = app.draft.as_preset(chosen)
            app.drawing.all()

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
        chosen = await self._chosen("What may happen unasked?", choices, wanted)
        if chosen is not None:
            await self._configure(policy=cast(Any, chosen))

    async def _thinking(self, wanted: str) -> None:
        chosen = await self._chosen("How long shall it think?", [Choice(name, name) for name in slash.THINKING], wanted)
        if chosen is not None:
            await self._configure(thinking=cast(Any, chosen))

    async def _chosen(self, title: str, choices: list[Choice], wanted: str) -> str | None:
        if not wanted:
            return await self._app.push_screen_wait(ChooseScreen(title, choices))
        if wanted in [one.value for one in choices]:
            return wanted
        self._app.say(f"`{wanted}` is none of {', '.join(one.value for one in choices)}")
        return None

    # Runs

    async def _queue(self, text: str) -> None:
        if (here := self._here()) is not None and text:
            await self._app.feed.queue(here, text, "follow_up")

    async def _undo(self, rest: str) -> None:
        if (here := self._here()) is not None:
            await self._app.feed.undo(here)

    async def _redo(self, rest: str) -> None:
        if (here := self._here()) is not None:
            await self._app.feed.undo(here, redo=True)

    async def _compact(self, instructions: str) -> None:
        if (here := self._here()) is not None:
            await self._app.feed.compact(here, instructions)

    async def _diff(self, rest: str) -> None:
        if (here := self._here()) is not None:
            diff = await self._app.feed.diff(here)
            if diff.strip():
                self._app.push_screen(ReadingScreen("What the session has changed", diffs.lines(harmless.prose(diff))))
            else:
                self._app.say("the session has changed nothing")

    async def _exec(self, command: str) -> None:
        app = self._app
        if not command:
            command = await self._asked("Run which program?")
        if command:
            size = app.main.transcript.size
            request = app.draft.request(
                place.describe(app.root), command=command, size=(max(20, size.width), max(5, size.height))
            )
            await app.opening.show(await app.feed.start(request))

    async def _skills(self, rest: str) -> None:
        app = self._app
        templates = await app.feed.templates(app.root)
        if not templates:
            app.say("no skill or prompt here; hint: put one into .tower/skills or .tower/prompts")
            return
        choices = [Choice(one.name, f"/{one.name}", f"{one.kind}: {one.description}") for one in templates]
        chosen = await app.push_screen_wait(ChooseScreen("Skills and prompts", choices))
        if chosen is not None:
            app.main.composer.put(f"/{chosen} ")

    # The look

    def _theme(self, wanted: str) -> None:
        app = self._app
        dark = wanted == "dark" or (wanted != "light" and not app.current_theme.dark)
        app.theme = (themes.DARK if dark else themes.LIGHT).name
        remembered.keep_theme(app.settings, app.theme)

    def _copy(self) -> None:
        conversation = self._app.open
        answers = [one for one in conversation.transcript.blocks if isinstance(one, blocks.Answer)] if conversation else []
        if not answers:
            self._app.say("there is no answer yet")
            return
        self._app.copy_to_clipboard(answers[-1].text)
        self._app.say("the last answer is in the clipboard, if this terminal has one")


def _about_model(one: extensions.ModelListing) -> str:
    if not one.usable:
        return one.reason.partition("; hint:")[0]
    parts = [one.model or "", "default" if one.isDefault else ""]
    if one.priceIn is not None and one.priceOut is not None:
        parts.append(f"${one.priceIn:g} in, ${one.priceOut:g} out per million")
    return ", ".join(part for part in parts if part)


def _split_model(wanted: str, models: Sequence[extensions.ModelListing]) -> tuple[str | None, str | None]:
    """A listed name, with or without one of its models behind it; else nobody's, and all of it is a model's name."""
    name, _, model = wanted.partition(" ")
    for one in models:
        if name in (one.name, one.provider):
            return one.name, model.strip() or None
    near = [one for one in models if one.usable and wanted.casefold() in f"{one.name} {one.model or ''}".casefold()]
    if len(near) == 1:
        return near[0].name, None
    return None, wanted


def _pair(name: str, value: str) -> Text:
    return Text.assemble((f"{name:<18} ", "dim"), harmless.prose(value).replace("\n", "\n" + " " * 19))
