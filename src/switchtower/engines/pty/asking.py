"""Prompts on the screen, made known: that the program waits, and, where yes and no can be told, as a question to be decided.

A decision is typed only while the very prompt that it was about is on the screen. Whatever anybody types meanwhile takes the
question back: somebody is answering it at the terminal.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from msgspec import Struct

from switchtower.core import engine, errors, events
from switchtower.engines.pty import prompts, rules
from switchtower.engines.pty.screen import Screen

KIND = "terminal"


class _Asked(Struct):
    prompt: prompts.Prompt
    approval_id: str
    deciding: "asyncio.Task[None]"


class Asking:
    def __init__(
        self,
        desk: engine.Desk,
        screen: Screen,
        tool: str,
        ruleset: rules.Rules,
        *,
        settle: Callable[[], Awaitable[None]],
        write: Callable[[str], bool],
        stop: Callable[[], None],
    ) -> None:
        """`write` types into the terminal, and says whether it could; `stop` ends the program because somebody said so."""
        self._desk = desk
        self._screen = screen
        self._tool = tool
        self._ruleset = ruleset
        self._settle = settle
        self._write = write
        self._stop = stop
        self._watch = prompts.Watch()
        self._asked: _Asked | None = None
        self._taken_back = False

    async def look(self) -> None:
        """The screen has settled: is there a prompt that was not there before, or has one gone?"""
        found = self._seek()
        news = self._watch.look(found)
        if news.gone is not None:
            await self._withdraw("the prompt has gone from the screen")
            if news.new is None:
                await self._desk.emit(events.PromptGone())
        new = news.new
        if new is None and found is not None and self._taken_back and self._asked is None:
            new = found  # somebody typed, and the prompt is still there
        self._taken_back = False
        if new is not None:
            await self._make_known(new)

    def typed(self) -> None:
        """Somebody types at the terminal."""
        self._watch.typed()
        self._taken_back = True

    async def take_back(self) -> None:
        await self._withdraw("somebody typed at the terminal")

    async def close(self) -> None:
        """The program has ended. The run's own end closes what is still open."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            asked.deciding.cancel()
            await asyncio.wait([asked.deciding])

    def _seek(self) -> prompts.Prompt | None:
        screen = self._screen
        return prompts.seek(screen.lines(), screen.cursor, self._tool, self._ruleset, columns=screen.cols)

    async def _make_known(self, prompt: prompts.Prompt) -> None:
        approval_id = None
        if prompt.approve_text is not None and prompt.deny_text is not None:
            approval_id = self._desk.mint("appr")
            deciding = asyncio.get_running_loop().create_task(self._decide(prompt, approval_id))
            self._asked = _Asked(prompt, approval_id, deciding)
            await asyncio.sleep(0)  # the question is on its way to the journal before the word that it waits
        await self._desk.emit(events.PromptShown(reason=prompt.reason, prompt=prompt.prompt, approval_id=approval_id))

    async def _decide(self, prompt: prompts.Prompt, approval_id: str) -> None:
        details: dict[str, object] = {
            "tool": self._tool,
            "reason": prompt.reason,
            "approve_text": prompt.approve_text,
            "deny_text": prompt.deny_text,
            "args": {"prompt": prompt.prompt, "screen": prompt.details, "options": list(prompt.options)},
        }
        question = engine.Question(
            call_id=approval_id,
            kind=KIND,
            title=prompt.prompt,
            summary=prompt.details or prompt.prompt,
            details=details,
            subject=f"{prompt.rule}\0{prompt.prompt}\0{prompt.details}",
            approval_id=approval_id,
        )
        try:
            answer = await self._desk.ask(question)
        except errors.Unshowable as unshowable:
            self._asked = None
            await self._desk.emit(events.WarningRaised(unshowable.code, unshowable.message, approval_id))
            return
        if self._asked is not None and self._asked.approval_id == approval_id:
            self._asked = None
        if answer.verdict is None:
            return  # expired, or taken back
        await self._settle()
        found = self._seek()
        if found is None or not found.says_the_same(prompt) or found.details != prompt.details:
            warning = events.WarningRaised(
                "PROMPT_GONE", "The prompt was no longer on the screen, so nothing was typed", approval_id
            )
            await self._desk.emit(warning)
            return
        text = prompt.approve_text if answer.verdict is events.Verdict.APPROVE else prompt.deny_text
        assert text is not None, "only a prompt with both texts is asked about"
        self._watch.typed()
        if not self._write(text):
            await self._desk.emit(
                events.WarningRaised("NOT_TYPED", "The program takes no input, so nothing was typed", approval_id)
            )
            return
        # relay, interop: the question's id is the input's, so two approvals give exactly one
        typed = events.TerminalTyped(
            input_id=approval_id,
            text=text,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            by=answer.by or events.SYSTEM,
        )
        await self._desk.emit(typed)
        if answer.verdict is events.Verdict.DENY_STOP:
            self._stop()

    async def _withdraw(self, reason: str) -> None:
        if self._asked is None:
            return
        asked, self._asked = self._asked, None
        await self._desk.withdraw(asked.approval_id, reason)
        await asyncio.wait([asked.deciding])
