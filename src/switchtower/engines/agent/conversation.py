"""What a conversation says about where a run stands. Pure."""

from collections.abc import Collection, Iterator, Sequence

from switchtower.core import engine


def close_open_calls(messages: Sequence[engine.Message], still_open: Collection[str]) -> Iterator[engine.Message]:
    """The conversation with an answer to every call. A run that was cancelled or denied leaves some without, and models
    reject that; the calls that are still to be settled are left alone."""
    answered = engine.answered_call_ids(messages)
    for message in messages:
        yield message
        for call in message.calls:
            if call.call_id not in answered and call.call_id not in still_open:
                yield engine.Message(
                    role="tool", text="not run: the run had ended", call_id=call.call_id, tool=call.tool, is_error=True
                )


def find_final_text(messages: Sequence[engine.Message]) -> str | None:
    """The closing message of a run that had nothing left to do when a restart cut it short."""
    if messages and messages[-1].role == "assistant" and not messages[-1].calls:
        return messages[-1].text
    return None
