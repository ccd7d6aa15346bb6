"""One question at a time at the terminal, in the order in which they came. What is answered elsewhere is taken off."""

import asyncio
from typing import Protocol


class Question(Protocol):
    @property
    def id(self) -> str: ...

    async def put(self, *, again: bool) -> None:
        """Asks until there is an answer; cancelled when the question is taken off. `again`: other questions came between
        what was shown of this one and now."""

    async def send(self) -> None:
        """Sends the answer. Not cancelled: it was given."""


class Asker:
    def __init__(self) -> None:
        self._known: set[str] = set()
        self._waiting: dict[str, Question] = {}
        self._putting: tuple[str, asyncio.Task[None]] | None = None
        self._work: asyncio.Task[None] | None = None

    def ask(self, question: Question) -> None:
        """Once, however often it is told of."""
        if question.id in self._known:
            return
        self._known.add(question.id)
        self._waiting[question.id] = question
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._ask_all())

    def take_off(self, question_id: str) -> None:
        """An answer that was given is on its way and stays so."""
        self._waiting.pop(question_id, None)
        if self._putting is not None and self._putting[0] == question_id:
            self._putting[1].cancel()

    def take_off_all(self) -> None:
        for question_id in [*self._waiting, *([self._putting[0]] if self._putting else [])]:
            self.take_off(question_id)

    async def close(self) -> None:
        self.take_off_all()
        if (work := self._work) is not None:
            await asyncio.wait({work})
            work.result()

    async def _ask_all(self) -> None:
        again = False
        try:
            while self._waiting:
                question = self._waiting.pop(next(iter(self._waiting)))
                putting = asyncio.create_task(question.put(again=again))
                self._putting = (question.id, putting)
                try:
                    await asyncio.wait({putting})
                finally:
                    self._putting = None
                    putting.cancel()
                if not putting.cancelled():
                    putting.result()
                    await question.send()
                again = True
        finally:
            self._work = None
