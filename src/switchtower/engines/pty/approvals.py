"""Reports prompts on the screen: that the program waits, and, where the rules know the keys for yes and no, as an approval
request.

A decision is typed only while the very prompt that it was about is on the screen and the program waits for input, and both are
checked in the same step of the event loop as the typing. Input that the program then does not read is retracted. Any input of a
user withdraws the request: the user is answering it at the terminal. Where the program takes single keys, Enter follows the
answer only while the program still shows the question and waits: a program that took the first key as the answer would read the
Enter as the answer to its next question.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, structs

from switchtower.core import errors, events
from switchtower.core.ports import engine
from switchtower.engines.pty import dialogs, prompts, rules, screen_rows
from switchtower.engines.pty.screen import TerminalScreen
from switchtower.engines.pty.terminal import ReadingState

KIND = "terminal"
ENTER = "\n"

TYPING_LIMIT = 2.0
"""The seconds after which an answer is abandoned because the program prints without a pause or does not wait for input."""
READING_LIMIT = {ReadingState.YES: 10.0, ReadingState.BUSY: 10.0, ReadingState.PERHAPS: 0.5, ReadingState.NO: 0.0}
"""The seconds that an answer may stay unread. A process that the answer has woken may compute for seconds on a busy machine; a
process that still waits, though there is input to read, waits for something else.
"""
ENTER_LIMIT = 1.0
"""The seconds after a program has read an answer's keys in which Enter may follow them."""
UNCHANGED = 0.5
"""A program that does not echo the keys waits for Enter if its screen has stayed unchanged for this many seconds. The keys reach
it a moment after they were written, and until then they seem to have been read.
"""
PAUSE = 0.02
MOST_RECHECKS = (0.12, 0.25, 0.5, 1.0)
"""The delays before the screen is checked again, because it shows a prompt but the program does not wait for input."""


class PromptOutput(Protocol):
    """The program's output on its way to the screen."""

    @property
    def is_drawn(self) -> bool:
        """True when all output that was read from the program is on the screen."""
        ...

    async def settle(self) -> None: ...

    def schedule_check(self, after: float) -> None:
        """Schedules another check of the screen, even when nothing more is printed."""
        ...


class PromptInput(Protocol):
    """The program's side of the terminal."""

    def write(self, data: bytes) -> None: ...

    def has_output(self) -> bool: ...

    def is_canonical(self) -> bool: ...

    def count_unread(self) -> int: ...

    def flush_input(self) -> None: ...

    def find_reading_state(self) -> ReadingState: ...


class _OpenPrompt(Struct):
    prompt: prompts.ScreenPrompt
    approval_id: str
    deciding: "asyncio.Task[None]"


class _AnswerNotTyped(Exception):
    """The answer was not typed; `code` and the message are those of the warning."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PromptApprovals:
    def __init__(
        self,
        context: engine.RunContext,
        screen: TerminalScreen,
        tool: str,
        ruleset: rules.PromptRules,
        *,
        output: PromptOutput,
        program: PromptInput,
        write: Callable[[str], bool],
        stop: Callable[[], None],
    ) -> None:
        """`write` types into the terminal and returns whether that succeeded; `stop` ends the program after a user requested
        it.
        """
        self._context = context
        self._screen = screen
        self._tool = tool
        self._ruleset = ruleset
        self._output = output
        self._program = program
        self._write = write
        self._stop = stop
        self._watch = prompts.PromptWatcher()
        self._open_prompt: _OpenPrompt | None = None
        self._withdrawn = False
        self._last: prompts.ScreenPrompt | None = None
        self._rechecks = 0
        self._typing: set[asyncio.Task[None]] = set()
        self._unread_answer = False
        self._answered = False

    @property
    def is_watching_closely(self) -> bool:
        """True after an answer was typed: the watcher must see the prompt disappear, however briefly, so that the same one can be
        asked again.
        """
        return self._answered

    async def check_screen(self, *, silent: bool = True) -> None:
        """Checks whether a prompt has appeared or disappeared. A dialog counts only when two checks in a row have found it, and
        so does every prompt while the program prints (`silent` is false).
        """
        found = self._find_prompt()
        is_dialog = found is not None and found.waits == "dialog"
        is_steady = _is_same(found, self._last) or (silent and not is_dialog)
        self._last = found
        if not is_steady or not (silent or is_dialog or found is None):
            if silent:
                self._output.schedule_check(MOST_RECHECKS[0])  # a dialog may be drawn in several steps
            return
        if found is not None and not self._watch.is_reported(found):
            if not self._is_read(found):
                self._check_again()
                found = None
            else:
                self._rechecks = 0
        if found is None or not self._watch.is_reported(found):
            self._answered = False
        news = self._watch.update(found)
        if news.gone is not None:
            await self._withdraw("the prompt has gone from the screen")
            if news.new is None:
                await self._context.emit(events.PromptCleared())
        new = news.new
        if new is None and found is not None and self._withdrawn and self._open_prompt is None:
            new = found  # a user typed, and the prompt is still shown
        self._withdrawn = False
        if new is not None:
            await self._announce(new)

    def on_input(self) -> None:
        """Notes that a user types at the terminal."""
        if self._unread_answer and self._program.count_unread():
            self._program.flush_input()
        self._unread_answer = False
        self._watch.on_input()
        self._withdrawn = True

    async def withdraw(self) -> None:
        await self._withdraw("somebody typed at the terminal")

    async def close(self) -> None:
        """Closes this when the program has ended. The end of the run closes open requests; decisions are recorded first."""
        if self._open_prompt is not None:
            asked, self._open_prompt = self._open_prompt, None
            asked.deciding.cancel()
            await asyncio.wait([asked.deciding])
        if self._typing:
            await asyncio.wait(self._typing)

    def _find_prompt(self) -> prompts.ScreenPrompt | None:
        screen = self._screen
        found = self._find_prompt_with(())
        # The scrolled-off rows are read only when they are needed: that is the more expensive part.
        missed = found is not None and found.flaw == dialogs.NO_BEGINNING
        found = self._find_prompt_with(history) if missed and (history := screen.list_history()) else found
        if found is None or found.approve_text is None or found.deny_text is None:
            return found
        if found.takes_key and self._program.is_canonical():
            return structs.replace(found, approve_text=found.approve_text + ENTER, deny_text=found.deny_text + ENTER)
        return found

    def _find_prompt_with(self, history: Sequence[str]) -> prompts.ScreenPrompt | None:
        screen = self._screen
        return prompts.find_prompt(
            screen.render_lines(),
            screen.cursor,
            self._tool,
            self._ruleset,
            columns=screen.cols,
            history=history,
            scrolled=screen.scrolled,
            background=screen.find_background,
        )

    def _is_read(self, prompt: prompts.ScreenPrompt) -> bool:
        """Returns whether the program waits for an answer. A line that ends with a newline is only text unless the program is in
        `read` on its terminal. A dialog takes single keys, so its terminal is not in canonical mode.
        """
        reading = self._program.find_reading_state()
        match prompt.waits:
            case "below":
                return reading is ReadingState.YES
            case "behind":
                return reading in (ReadingState.YES, ReadingState.PERHAPS)
            case "dialog":
                return reading in (ReadingState.YES, ReadingState.PERHAPS) and not self._program.is_canonical()

    def _check_again(self) -> None:
        after = MOST_RECHECKS[min(self._rechecks, len(MOST_RECHECKS) - 1)]
        self._rechecks += 1
        self._output.schedule_check(after)

    async def _announce(self, prompt: prompts.ScreenPrompt) -> None:
        approval_id = None
        if prompt.approve_text is not None and prompt.deny_text is not None:
            approval_id = self._context.mint("appr")
            deciding = asyncio.get_running_loop().create_task(self._decide(prompt, approval_id))
            self._open_prompt = _OpenPrompt(prompt, approval_id, deciding)
            self._typing.add(deciding)
            deciding.add_done_callback(self._typing.discard)
            await asyncio.sleep(0)  # the request is sent to the journal before the report that it waits
        await self._context.emit(
            events.PromptShown(reason=prompt.reason, prompt=self._make_title(prompt), approval_id=approval_id)
        )

    def _make_title(self, prompt: prompts.ScreenPrompt) -> str:
        """Redacts secrets first, then shortens: the rest of a secret that is cut in two would not be recognised."""
        is_whole = len(prompt.text) <= screen_rows.PROMPT_LIMIT
        return prompt.prompt if is_whole else screen_rows.clean_question(self._context.redact(prompt.text))

    async def _decide(self, prompt: prompts.ScreenPrompt, approval_id: str) -> None:
        try:
            answer = await self._context.request_approval(self._make_question(prompt, approval_id))
        except errors.Unshowable as unshowable:
            self._open_prompt = None
            await self._context.emit(events.WarningRaised(unshowable.code, unshowable.message, approval_id))
            return
        if self._open_prompt is not None and self._open_prompt.approval_id == approval_id:
            self._open_prompt = None
        if answer.verdict is None:
            return  # expired, or withdrawn
        try:
            text = await self._type_answer(prompt, answer.verdict)
        except _AnswerNotTyped as not_typed:
            await self._context.emit(events.WarningRaised(not_typed.code, str(not_typed), approval_id))
            if answer.verdict is events.Verdict.DENY_STOP:
                self._stop()
            return
        # relay, interop: the request's id is the input's, so two approvals give exactly one input
        typed = events.TerminalTyped(
            input_id=approval_id,
            text=text,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            by=answer.by or events.SYSTEM,
        )
        await self._context.emit(typed)
        if answer.verdict is events.Verdict.DENY_STOP:
            self._stop()
        elif await self._retract_unread_answer():
            self._answered, self._withdrawn = False, True  # it can be asked again
            self._output.schedule_check(0)
            left = "The program did not read the answer, so it was taken back"
            await self._context.emit(events.WarningRaised("NOT_READ", left, approval_id))

    def _make_question(self, prompt: prompts.ScreenPrompt, approval_id: str) -> engine.ApprovalQuestion:
        title = self._make_title(prompt)
        about = prompt.details or prompt.text or prompt.prompt
        details: dict[str, object] = {
            **({events.CANNOT_APPROVE: prompt.flaw} if prompt.flaw else {}),
            **({"screen": prompt.details} if prompt.details else {}),
            "tool": self._tool,
            "reason": prompt.reason,
            "approve_text": "" if prompt.flaw else prompt.approve_text,
            "deny_text": prompt.deny_text,
            "args": {"prompt": title, "screen": prompt.details, "options": list(prompt.options)},
        }
        return engine.ApprovalQuestion(
            call_id=approval_id,
            kind=KIND,
            title=title,
            summary=screen_rows.summarize(self._context.redact(about) if len(about) > screen_rows.PROMPT_LIMIT else about),
            details=details,
            subject=f"{prompt.rule}\0{prompt.prompt}\0{prompt.details}",
            approval_id=approval_id,
            options=("deny",) if prompt.flaw else ("approve", "deny"),
        )

    async def _type_answer(self, prompt: prompts.ScreenPrompt, verdict: events.Verdict) -> str:
        """Types the answer into the prompt that it is for, and returns the typed text. Raises `_AnswerNotTyped`."""
        is_approved = verdict is events.Verdict.APPROVE
        if is_approved and prompt.flaw:
            raise _AnswerNotTyped("NOT_TYPED", f"{prompt.flaw}, so nothing was typed")
        clock = asyncio.get_running_loop().time
        until = clock() + TYPING_LIMIT
        while True:
            await self._output.settle()
            # Nothing else runs between this check and the write.
            if self._output.is_drawn and not self._program.has_output():
                found = self._find_prompt()
                if found is None or not found.is_same_request(prompt):
                    raise _AnswerNotTyped("PROMPT_GONE", "The prompt was no longer on the screen, so nothing was typed")
                if self._program.count_unread():
                    raise _AnswerNotTyped("NOT_TYPED", "The program has not read what was typed before, so nothing was typed")
                if self._is_read(found):
                    text = found.approve_text if is_approved else found.deny_text
                    assert text is not None, "only a prompt with both texts is asked about"
                    self._watch.on_input()
                    keys = text.removesuffix(ENTER)
                    in_two_steps = keys != "" and keys != text and found.waits != "dialog" and not self._program.is_canonical()
                    before = self._screen.render_lines()
                    if not self._write(keys if in_two_steps else text):
                        raise _AnswerNotTyped("NOT_TYPED", "The program takes no input, so nothing was typed")
                    self._answered = self._unread_answer = True
                    return keys if in_two_steps and not await self._type_enter(before, keys) else text
            if clock() >= until:
                raise _AnswerNotTyped("NOT_TYPED", "The program does not wait for the answer, so nothing was typed")
            await asyncio.sleep(PAUSE)

    async def _type_enter(self, before: Sequence[str], keys: str) -> bool:
        """Types Enter after an answer's keys if the program waits for it; returns whether it was typed. `before` is the screen
        without the keys. It gives up when a user types meanwhile, or when the program asks its next question.
        """
        clock = asyncio.get_running_loop().time
        unread_until = clock() + READING_LIMIT[ReadingState.YES]
        read_at: float | None = None
        while self._unread_answer and self._open_prompt is None and not self._program.is_canonical():
            now = clock()
            if self._program.count_unread():
                if now >= unread_until:
                    return False
            else:
                read_at = read_at or now
                # A program prints before it reads, so its output is checked after its system call.
                reading = self._program.find_reading_state()
                await self._output.settle()
                if self._output.is_drawn and not self._program.has_output() and self._unread_answer:
                    lines = self._screen.render_lines()
                    has_echo, is_unchanged = _has_only_added(lines, before, keys), lines == before
                    waits = reading in (ReadingState.YES, ReadingState.PERHAPS) and not self._program.count_unread()
                    if waits and (has_echo or (is_unchanged and now - read_at >= UNCHANGED)):
                        return self._write(ENTER)
                    if reading is ReadingState.YES and not (has_echo or is_unchanged):
                        return False  # it reads from something else
                if now - read_at >= ENTER_LIMIT:
                    return False
            await asyncio.sleep(PAUSE)
        return False

    async def _retract_unread_answer(self) -> bool:
        """Retracts an answer that the program does not read, so that it cannot answer the next question."""
        clock = asyncio.get_running_loop().time
        began = clock()
        await asyncio.sleep(PAUSE)
        while self._unread_answer and self._program.count_unread():
            if clock() - began >= READING_LIMIT[self._program.find_reading_state()]:
                break
            await asyncio.sleep(PAUSE)
        left, self._unread_answer = self._unread_answer and self._program.count_unread() > 0, False
        if left:
            self._program.flush_input()
        return left

    async def _withdraw(self, reason: str) -> None:
        if self._open_prompt is None:
            return
        asked, self._open_prompt = self._open_prompt, None
        await self._context.withdraw_approval(asked.approval_id, reason)
        await asyncio.wait([asked.deciding])


def _is_same(found: prompts.ScreenPrompt | None, before: prompts.ScreenPrompt | None) -> bool:
    if found is None or before is None:
        return found is before
    return found.is_same_request(before)


def _has_only_added(lines: Sequence[str], before: Sequence[str], keys: str) -> bool:
    """Returns whether the screen is as before, with the keys behind one of its rows."""
    changed = [(now, then) for now, then in zip(lines, before, strict=False) if now != then]
    if len(lines) != len(before) or len(changed) != 1:
        return False
    now, then = changed[0]
    return now.startswith(then.rstrip()) and now[len(then.rstrip()) :].strip() == keys
