"""The dialogs of one run: a question of an extension becomes a dialog of the run context, and the checked answer is returned.

Only one question is open at a time, so that a user never sees two at once. When no client can answer, it fails at once instead of
waiting.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.extensions import port

LONGEST_TEXT = 256 * 1024
LONGEST_TIMEOUT = 24 * 60 * 60.0
MOST_ATTEMPTS = 3
"""The number of times that an interview is repeated until its answers are valid."""

DialogOpener = Callable[[events.Dialog], Awaitable[engine.DialogAnswer]]


class RunContextUi:
    """Implements `port.Ui`."""

    def __init__(self, consult: DialogOpener, now_ms: Callable[[], int], *, timeout: float, headless: bool) -> None:
        self._open_dialog_callback = consult
        self._now_ms = now_ms
        self._timeout = timeout
        self._headless = headless
        self._one_at_a_time = asyncio.Lock()

    async def select(self, title: str, options: Sequence[str], *, timeout: float | None = None) -> str:
        choices = tuple(_check_text(option, "an option", longest=port.LONGEST_LINE) for option in options)
        if not 1 <= len(set(choices)) == len(choices) <= port.MOST_OPTIONS:
            raise ValueError(f"a select has 1 to {port.MOST_OPTIONS} options, all of them different")
        chosen = (await self._open_dialog(self._make_dialog("select", title, options=choices), timeout))["value"]
        if chosen not in choices:  # it was shown as something else: a secret in it was redacted
            raise port.DialogFailed(f"“{title}” was answered with none of its options")
        return str(chosen)

    async def confirm(self, title: str, message: str, *, timeout: float | None = None) -> bool:
        dialog = self._make_dialog("confirm", title, message=_check_text(message, "the message", empty=True))
        return bool((await self._open_dialog(dialog, timeout))["confirmed"])

    async def input(self, title: str, placeholder: str | None = None, *, timeout: float | None = None) -> str:
        shown = None if placeholder is None else _check_text(placeholder, "the placeholder", empty=True)
        return str((await self._open_dialog(self._make_dialog("input", title, placeholder=shown), timeout))["value"])

    async def editor(self, title: str, prefill: str | None = None, *, timeout: float | None = None) -> str:
        shown = None if prefill is None else _check_text(prefill, "the prefill", empty=True)
        return str((await self._open_dialog(self._make_dialog("editor", title, prefill=shown), timeout))["value"])

    async def interview(
        self, title: str, questions: Sequence[port.InterviewQuestion | Mapping[str, Any]], *, timeout: float | None = None
    ) -> dict[str, Any]:
        asked = port.parse_questions(questions)
        dialog = self._make_dialog("interview", title, questions=tuple(msgspec.to_builtins(question) for question in asked))
        problems: list[str] = []
        for _ in range(MOST_ATTEMPTS):
            response = await self._open_dialog(dialog, timeout)
            answers, problems = port.check_responses(asked, response["responses"])
            if not problems:
                return answers
            dialog = replace(dialog, message=f"Please answer again: {'; '.join(problems)}")
        raise port.DialogFailed(f"the interview “{title}” was not answered as asked: {'; '.join(problems)}")

    def _make_dialog(self, method: str, title: str, **fields: Any) -> events.Dialog:
        titled = _check_text(title, "the title", longest=port.LONGEST_LINE)
        return events.Dialog(id="", method=method, title=titled, expires_at_ms=0, **fields)

    async def _open_dialog(self, dialog: events.Dialog, timeout: float | None) -> dict[str, Any]:
        seconds = self._timeout if timeout is None else timeout
        if not 0 < seconds <= LONGEST_TIMEOUT:
            raise ValueError(f"a dialog's timeout is more than 0 and at most {LONGEST_TIMEOUT:g} seconds")
        if self._headless:
            raise port.DialogFailed(f"“{dialog.title}” cannot be asked: nobody is there to answer in a headless session")
        async with self._one_at_a_time:
            # The time starts when the question is asked, not while another one is still open.
            answer = await self._open_dialog_callback(replace(dialog, expires_at_ms=self._now_ms() + round(seconds * 1_000)))
        if answer.response is not None:
            return answer.response
        if answer.reason == "dismissed":
            raise port.DialogDismissed(f"“{dialog.title}” was dismissed")
        # pi-server 18.3: when no client responds in time, the request fails and the extension receives an error
        why = f"nobody did within {seconds:g} s" if answer.reason == "expired" else answer.reason
        raise port.DialogFailed(f"“{dialog.title}” was not answered: {why}")


def _check_text(text: object, what: str, *, longest: int = LONGEST_TEXT, empty: bool = False) -> str:
    """Raises `ValueError` for text that cannot be shown. Lone surrogates, which the journal cannot store, are replaced."""
    if not isinstance(text, str):
        raise ValueError(f"{what} is a {type(text).__name__}, not a text")
    if not (empty or text.strip()) or len(text) > longest:
        raise ValueError(f"{what} must have 1 to {longest} characters")
    return text.encode(errors="replace").decode()
