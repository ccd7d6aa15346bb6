"""Summarises the events of a run, for tests about their order."""

from switchtower.testing.minicodex_client import Frame


def summarise_events(frames: list[Frame]) -> list[str]:
    """Returns one word for each event: a status, an error's code, a decision, or the type. Pieces of one text are one word."""
    words: list[str] = []
    for frame in frames:
        if "event_id" in frame and frame["type"] != "snapshot":
            word = _summarise_frame(frame)
            if word not in ("assistant_text", "reasoning") or words[-1:] != [word]:
                words.append(word)
    return words


def _summarise_frame(frame: Frame) -> str:
    match frame["type"]:
        case "run_status":
            return str(frame["run_state"]["status"])
        case "error":
            return str(frame["code"])
        case "approval_decision":
            return str(frame["decision"])
        case type_:
            return str(type_)


def drop_deltas(frames: list[Frame]) -> list[str]:
    return [word for word in summarise_events(frames) if word not in ("assistant_text", "reasoning")]


def get_result_text(output: Frame) -> str:
    return "".join(block["text"] for block in output["result"]["content"])
