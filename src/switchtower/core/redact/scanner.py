"""Decides what is a secret. It takes suspicious text in any pieces and gives it back without its secrets.

How the text was cut makes no difference, because every decision rests on the text around its place and on nothing else:
a bounded look back at what came out, and a look ahead that is waited for. What is undecided is held, and that is never
more than a few hundred characters; the rest of a secret that is already marked is dropped as it comes.
"""

import re
from collections.abc import Callable
from functools import cache

from switchtower.core.redact import names, shapes, starts


class Scanner:
    __slots__ = ("_before", "_done", "_floor", "_out", "_pem_left", "_position", "_rest", "_text")

    def __init__(self, context: str) -> None:
        self._text = context
        """What was let go but may still be looked back at, then what is undecided."""
        self._position = len(context)
        """Up to here in `_text`, everything is decided."""
        self._done = self._position
        """Up to here in `_text`, everything is let go; a name and its sign go before the value is decided."""
        self._floor = 0
        """Where in `_text` the last secret ends. Looking back, one sees its mark and what came out before."""
        self._before = ""
        """The end of what came out before `_floor`."""
        self._rest: re.Pattern[str] | None = None
        """What is swallowed: the rest of a secret whose mark is already out."""
        self._pem_left = 0
        """How much a PEM block may still swallow; 0 outside of one."""
        self._out: list[str] = []

    def scan(self, more: str, *, final: bool = False) -> str:
        """Decides as much as can be decided; everything, when no more will come."""
        self._text += more
        while self._swallow(final=final) and self._decide_next(final=final):
            pass
        unneeded = max(self._floor, self._position - shapes.CONTEXT)
        if unneeded > 0:
            self._text = self._text[unneeded:]
            self._position -= unneeded
            self._done -= unneeded
            self._floor = 0
        redacted = "".join(self._out)
        self._out.clear()
        return redacted

    def settled(self) -> str | None:
        """The context to go on from, when nothing is held or being swallowed."""
        if self._position < len(self._text) or self._rest is not None or self._pem_left:
            return None
        return self._looking_back(self._position)

    def _let_go(self, end: int) -> None:
        """Everything up to `end` is decided and harmless."""
        if end > self._done:
            self._out.append(self._text[self._done : end])
            self._done = end
        self._position = end

    def _hide(self, end: int, rest: re.Pattern[str] | None = None) -> None:
        """Everything not yet let go up to `end` is a secret, and so is all of `rest` that follows."""
        self._out.append(shapes.MARK)
        self._before = self._looking_back(self._done) + shapes.MARK
        self._skip(end)
        self._rest = rest

    def _skip(self, end: int) -> None:
        self._done = self._position = self._floor = end

    def _looking_back(self, start: int) -> str:
        """What came out right before this place, as far back as any decision may look."""
        return (self._before + self._text[max(self._floor, start - shapes.CONTEXT) : start])[-shapes.CONTEXT :]

    def _is_open(self, end: int) -> bool:
        """Whether a run that ends here may go on: the text ends here too, or in an escape or dot that depends on what follows."""
        return len(self._text) - end <= 3 and not self._text[end:].strip("\\.")

    def _swallow(self, *, final: bool) -> bool:
        """Drops the rest of a secret; False when it may go on beyond the end."""
        if self._pem_left and not self._swallow_pem(final=final):
            return False
        if self._rest is not None:
            self._skip(_end(self._rest, self._text, self._position))
            if self._is_open(self._position) and not final:
                return False
            self._rest = None
        return True

    def _swallow_pem(self, *, final: bool) -> bool:
        limit = self._position + self._pem_left
        found = shapes.PEM_END.search(self._text, self._position, limit)
        if found is not None:
            self._skip(found.end() if found[0].startswith("-") else found.start())
        elif limit <= len(self._text):
            self._skip(limit)
            self._rest = shapes.TOKEN_REST
        elif final:
            self._skip(len(self._text))
        else:
            dropped = max(0, len(self._text) - shapes.PEM_END_LONGEST - self._position)
            self._pem_left -= dropped
            self._skip(self._position + dropped)
            return False
        self._pem_left = 0
        return True

    def _decide_next(self, *, final: bool) -> bool:
        """Goes to the next place of interest and decides about it; False when there is none, or when it has to wait."""
        text = self._text
        found = _of_interest()(text, self._position)
        if found is None:
            self._let_go(len(text))
            return False
        start = found.start()
        self._let_go(start)
        if text[start] in starts.SIGNS:
            return self._decide_sign(start, final=final)
        if token := starts.TOKEN.match(text, start):
            self._hide(token.end(), shapes.TOKEN_REST)
        elif announced := starts.ANNOUNCED.match(text, start):
            return self._decide_value(start, announced.end() - 1, names.kind_of(announced[0]), final=final)
        elif begin := shapes.PEM_BEGIN.match(text, start):
            return self._decide_pem(begin.end(), final=final)
        elif found.end() < len(text) or final:
            self._let_go(start + 1)
        else:
            return False
        return True

    def _decide_pem(self, body: int, *, final: bool) -> bool:
        if shapes.PEM_BODY.match(self._text, body):
            self._hide(body)
            self._pem_left = shapes.PEM_LONGEST
        elif shapes.PEM_BODY_CUT_SHORT.match(self._text, body) and not final:
            return False
        else:
            self._let_go(body)
        return True

    def _decide_sign(self, start: int, *, final: bool) -> bool:
        behind = self._looking_back(start)[::-1]
        if self._text[start] == ":" and shapes.USER_BEHIND.match(behind):
            return self._decide_url(start, final=final)
        named = shapes.NAME_BEHIND.match(behind)
        return self._decide_value(start, start, names.kind_of(named[1][::-1]) if named else None, final=final)

    def _decide_value(self, start: int, sign: int, kind: names.Kind | None, *, final: bool) -> bool:
        """At the sign or blank behind a name: the value ahead may be a secret, the name stays."""
        if kind is None:
            self._let_go(sign + 1)
            return True
        text = self._text
        ahead = shapes.VALUE_AHEAD.match(text, sign)
        assert ahead is not None, "every part of it may be absent"
        value_at = ahead.end()
        quote = ahead["quote"] or ""
        run = shapes.RUNS.get(quote, shapes.ESCAPED_RUN)
        judged = _end(run.start, text, value_at)
        goes_on = _end(run.rest, text, judged) > judged
        if not goes_on and self._is_open(judged) and not final:
            return self._wait_at(start, value_at)
        self._let_go(value_at)
        value = names.Value(
            text[value_at:judged],
            quoted=bool(quote),
            assigned=ahead["sign"] == "=" and not ahead["blank"] and text[sign - 1] not in " \t",
            after_scheme=bool(ahead["scheme"]) or not ahead["sign"],
            followed_by="" if goes_on else text[judged : judged + 1],
        )
        marked = shapes.MARK[:-1] in value.text
        if not marked and ahead["sign"] != "::" and names.is_secret(kind, value):
            self._hide(judged, run.rest)
        return True

    def _decide_url(self, colon: int, *, final: bool) -> bool:
        """Behind `scheme://user:` a password goes up to the last `@` before the path; without one it is a port."""
        text = self._text
        value_at = colon + 1
        end = _end(shapes.PASSWORD_IN_URL, text, value_at)
        too_long = end - value_at > shapes.PASSWORD_IN_URL_LONGEST
        if end == len(text) and not too_long and not final:
            return self._wait_at(colon, value_at)
        self._let_go(value_at)
        at_sign = text.rfind("@", value_at, end)
        if too_long:
            self._hide(value_at, shapes.PASSWORD_IN_URL)
        elif at_sign > value_at and not names.is_reference(text[value_at:at_sign]):
            self._hide(at_sign)
        return True

    def _wait_at(self, start: int, value_at: int) -> bool:
        """Lets the name and its sign go, to come back to them when more is known of the value."""
        self._let_go(value_at)
        self._position = start
        return False


class SpanFinder(Scanner):
    """Says where in one whole text the secrets are, and lets nothing out."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        super().__init__("")
        self._spans: list[tuple[int, int]] = []

    def find(self, text: str) -> list[tuple[int, int]]:
        self.scan(text, final=True)
        return self._spans

    def _hide(self, end: int, rest: re.Pattern[str] | None = None) -> None:
        self._spans.append((self._done, self._done))
        super()._hide(end, rest)

    def _skip(self, end: int) -> None:
        super()._skip(end)
        self._spans[-1] = (self._spans[-1][0], end)


@cache
def _of_interest() -> Callable[..., re.Match[str] | None]:
    """Compiled when something suspicious first comes, because compiling it takes long and starting has to be quick."""
    return re.compile(starts.ANY, re.ASCII).search


def _end(run: re.Pattern[str], text: str, start: int) -> int:
    found = run.match(text, start)
    assert found is not None, "a run may be empty"
    return found.end()
