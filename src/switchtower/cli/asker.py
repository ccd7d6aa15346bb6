"""One question at a time at the terminal, in the order in which they came. What is answered elsewhere is taken off."""

import asyncio
from typing import Protocol


class TerminalQuestion(Protocol):
    @property
    def id(self) -> str: ...

    async def ask(self, *, again: bool) -> None:
        """Asks until there is an answer; cancelled when the question is taken off. `again`: other questions came between
        what was shown of this one and now."""

    async def send_answer(self) -> None:
        """Sends the answer. Not cancelled: it was given."""


class QuestionQueue:
    def __init__(self) -> None:
        self._known: set[str] = set()
        self._waiting: dict[str, TerminalQuestion] = {}
        self._current: tuple[str, asyncio.Task[None]] | None = None
        self._task: asyncio.Task[None] | None = None

    def enqueue(self, question: TerminalQuestion) -> None:
        """Once, however often it is told of."""
        if question.id in self._known:
            return
        self._known.add(question.id)
        self._waiting[question.id] = question
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._ask_waiting())

    def withdraw(self, question_id: str) -> None:
        """An answer that was given is on its way and stays so."""
        self._waiting.pop(question_id, None)
        if self._current is not None and self._current[0] == question_id:
            self._current[1].cancel()

    def withdraw_all(self) -> None:
        for question_id in [*self._waiting, *([self._current[0]] if self._current else [])]:
            self.withdraw(question_id)

    async def close(self) -> None:
        self.withdraw_all()
        if (work := self._task) is not None:
            await asyncio.wait({work})
            work.result()

    async def _ask_waiting(self) -> None:
        again = False
        try:
            while self._waiting:
                question = self._waiting.pop(next(iter(self._waiting)))
                putting = asyncio.create_task(question.ask(again=again))
                self._current = (question.id, putting)
                try:
                    await asyncio.wait({putting})
                finally:
                    self._current = None
                    putting.cancel()
                if not putting.cancelled():
                    putting.result()
                    await question.send_answer()
                again = True
        finally:
            self._task = None
