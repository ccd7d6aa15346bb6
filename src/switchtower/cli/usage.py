"""What a run took, added up from the daemon's reports on each call of a model. Pure."""

import re

from msgspec import Struct

_CALL_USAGE_REPORT = re.compile(r"(\d+) tokens in, (\d+) out(?:, \$(\d+(?:\.\d+)?))? \((.*)\)", re.DOTALL)


class RunUsage(Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    cost: float = 0.0
    priced_calls: int = 0
    models: dict[str, None] = {}
    """In the order in which they served."""

    def add_report(self, report: str) -> bool:
        """Whether it was understood. The wire has only this one line of text for it."""
        if (parts := _CALL_USAGE_REPORT.fullmatch(report)) is None:
            return False
        tokens_in, tokens_out, cost, model = parts.groups()
        self.input_tokens += int(tokens_in)
        self.output_tokens += int(tokens_out)
        self.calls += 1
        if cost is not None:
            self.cost += float(cost)
            self.priced_calls += 1
        self.models[model] = None
        return True

    def __str__(self) -> str:
        spent = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out"
        return f"{spent}{format_price(self.cost, self.priced_calls, self.calls)} ({', '.join(self.models)})"


def format_price(cost: float, priced_calls: int, calls: int) -> str:
    """What is known of a price, to put behind the tokens."""
    if not priced_calls:
        return ""
    return f", {format_dollars(cost)}" if priced_calls == calls else f", at least {format_dollars(cost)}"


def format_dollars(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 1 or not cost else f"${cost:.4f}"
