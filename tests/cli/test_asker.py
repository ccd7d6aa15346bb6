"""One question at a time: their order, and what becomes of those that are over."""

import asyncio

from switchtower.cli.terminal.user_input import QuestionQueue


class FakeQuestion:
    """A question whose answer the test gives."""

    def __init__(self, id: str, happened: list[str]) -> None:
        self.id = id
        self.answer = asyncio.Event()
        self.is_put = asyncio.Event()
        self.is_sending = asyncio.Event()
        self.may_send = asyncio.Event()
        self.may_send.set()
        self._happened = happened

    async def ask(self, *, again: bool) -> None:
        self._happened.append(f"put {self.id}{' again' if again else ''}")
        self.is_put.set()
        await self.answer.wait()

    async def send_answer(self) -> None:
        self.is_sending.set()
        await self.may_send.wait()
        self._happened.append(f"sent {self.id}")


async def test_the_second_question_waits_for_the_first_and_is_shown_again() -> None:
    happened: list[str] = []
    asker, first, second = QuestionQueue(), FakeQuestion("1", happened), FakeQuestion("2", happened)
    for question in (first, second, first):
        asker.enqueue(question)
    async with asyncio.timeout(60):
        await first.is_put.wait()
        first.answer.set()
        await second.is_put.wait()
        second.answer.set()
        third = FakeQuestion("3", happened)
        asker.enqueue(third)
        await third.is_put.wait()
        await asker.close()

    assert happened == ["put 1", "sent 1", "put 2 again", "sent 2", "put 3 again"]


async def test_what_is_taken_off_is_not_sent_and_makes_room_for_the_next() -> None:
    happened: list[str] = []
    asker, first, second, third = QuestionQueue(), *(FakeQuestion(id, happened) for id in "123")
    for question in (first, second, third):
        asker.enqueue(question)
    async with asyncio.timeout(60):
        await first.is_put.wait()
        asker.withdraw("2")
        asker.withdraw("1")
        await third.is_put.wait()
        await asker.close()
        asker.withdraw("3")

    assert happened == ["put 1", "put 3 again"]


async def test_an_answer_that_was_given_is_sent_although_its_question_is_over() -> None:
    happened: list[str] = []
    asker, first = QuestionQueue(), FakeQuestion("1", happened)
    first.may_send.clear()
    asker.enqueue(first)
    async with asyncio.timeout(60):
        await first.is_put.wait()
        first.answer.set()
        await first.is_sending.wait()
        asker.withdraw("1")
        asker.withdraw_all()
        first.may_send.set()
        await asker.close()

    assert happened == ["put 1", "sent 1"]
