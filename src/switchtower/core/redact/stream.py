"""The scanner: text goes in piece by piece and comes out without its secrets, the same however it was cut.

That holds because every decision rests only on the raw text around it: a bounded look back, and a look ahead that is
waited for. What is undecided is held; it is never more than a few hundred characters. Whole texts go through here too.
"""

import re
from collections.abc import Callable

from switchtower.core.redact import names, shapes, starts
from switchtower.core.redact.literals import Literals

_MARK = shapes.MARK
_CONTEXT = shapes.CONTEXT
_IDLE_LONGEST = 6 * _CONTEXT


class Rules:
    """What streams of one redactor share: its literals, and one test that says whether text is of interest at all."""

    def __init__(self) -> None:
        self.literals = Literals()
        self.suspicious: Callable[..., re.Match[str] | None]
        self._compile()

    def learn(self, value: str) -> None:
        if self.literals.add(value):
            self._compile()

    def _compile(self) -> None:
        hint = self.literals.hint()
        self.suspicious = re.compile(f"{starts.ANY}|{hint}" if hint else starts.ANY, re.ASCII).search


_of_interest = re.compile(starts.ANY, re.ASCII).search


class StreamRedactor:
    """One text as it arrives. `feed` returns what may be let go now, `close` the rest; then it is as new."""

    __slots__ = ("_calm", "_done", "_literal", "_pem_left", "_position", "_rest", "_rules", "_text")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._reset()

    def _reset(self) -> None:
        self._calm = True
        """No more is held than a few characters that may begin something, and nothing is being swallowed."""
        self._text = ""
        """Raw text: what was let go but may still be looked back at, then what is undecided."""
        self._position = 0
        """Up to here in `_text`, everything is decided."""
        self._done = 0
        """Up to here in `_text`, everything is let go; a name and its `=` go before their value is decided."""
        self._literal = ""
        """What comes after `_text`, when it may be the beginning of a literal."""
        self._rest: re.Pattern[str] | None = None
        """What is swallowed: the rest of a secret whose mark is already out."""
        self._pem_left = 0
        """How much a PEM block may still swallow; 0 outside of one."""

    def feed(self, delta: str) -> str:
        if self._calm:
            text = self._text + delta
            position = self._position
            found = self._rules.suspicious(text, position)
            if found is None:
                self._text = text = text if len(text) < _TEXT_LONGEST else text[-_CONTEXT:]
                self._position = len(text)
                return ...
        return self._look(delta)

    def _scan(self, more: str, *, final: bool) -> str:
        """Decides as much as can be; with `final`, everything."""
        self._text += more
        out: list[str] = []
        while self._swallow(final=final):
            found = _of_interest(self._text, self._position)
            if found is None:
                self._let_go(out, len(self._text))
                break
            start = found.start()
            self._let_go(out, start)
            first = self._text[start]
            if first in "=: \t":
                decided = self._after_name(out, start, final=final)
            elif first == "-":
                decided = self._pem_block(out, start, found.end(), final=final)
            else:
                decided = self._token(out, start, final=final)
            if not decided:
                break
        return "".join(out)

    def _let_go(self, out: list[str], end: int) -> None:
        """Everything up to `end` is decided and harmless."""
        if end > self._done:
            out.append(self._text[self._done : end])
            self._done = end
        self._position = end

    def _hide(self, out: list[str], end: int, rest: re.Pattern[str] | None) -> None:
        """Everything from what is done up to `end` is a secret, and so is all of `rest` that follows."""
        out.append(_MARK)
        self._done = self._position = end
        self._rest = rest

    def _is_open(self, end: int) -> bool:
        """Whether a run that ends here may go on: the text ends here too, or with an escape or dot that wants what follows."""
        left = len(self._text) - end
        return left <= 3 and not self._text[end:].strip("\\.")

    def _swallow(self, *, final: bool) -> bool:
        """Drops the rest of a secret; False when it may go on beyond the end."""
        if self._pem_left and not self._swallow_pem(final=final):
            return False
        if self._rest is not None:
            self._done = self._position = _end(self._rest, self._text, self._position)
            if not final and self._is_open(self._position):
                return False
            self._rest = None
        return True

    def _swallow_pem(self, *, final: bool) -> bool:
        limit = self._position + self._pem_left
        found = shapes.PEM_END.search(self._text, self._position, limit)
        if found is not None:
            self._done = self._position = found.end() if found[0].startswith("-") else found.start()
        elif limit <= len(self._text):
            self._done = self._position = limit
            self._rest = shapes.TOKEN_REST
        elif final:
            self._done = self._position = len(self._text)
        else:
            dropped = max(0, len(self._text) - shapes.PEM_END_LONGEST - self._position)
            self._pem_left -= dropped
            self._position += dropped
            self._done = self._position
            return False
        self._pem_left = 0
        return True

    # Each of these decides about one place, or returns False to wait for more text.

    def _token(self, out: list[str], start: int, *, final: bool) -> bool:
        token = starts.TOKEN.match(self._text, start)
        if token is not None:
            self._hide(out, token.end(), shapes.TOKEN_REST)
        elif final:
            self._let_go(out, start + 1)
        return token is not None or final

    def _pem_block(self, out: list[str], start: int, end: int, *, final: bool) -> bool:
        begin = shapes.PEM_BEGIN.match(self._text, start)
        if begin is None:
            if end == len(self._text) and not final:
                return False
            self._let_go(out, start + 1)
        elif shapes.PEM_BODY.match(self._text, begin.end()):
            self._hide(out, begin.end(), None)
            self._pem_left = shapes.PEM_LONGEST
        elif shapes.PEM_BODY_CUT_SHORT.match(self._text, begin.end()) and not final:
            return False
        else:
            self._let_go(out, begin.end())
        return True

    def _after_name(self, out: list[str], start: int, *, final: bool) -> bool:
        """At a sign or blank behind what may be a name: the value ahead is hidden, the name stays."""
        text = self._text
        behind = text[max(0, start - _CONTEXT) : start][::-1]
        if text[start] == ":" and shapes.USER_BEHIND.match(behind):
            return self._password_in_url(out, start, final=final)
        kind = _announced(behind, text[start])
        if kind is None:
            self._let_go(out, start + 1)
            return True
        ahead = shapes.VALUE_AHEAD.match(text, start)
        assert ahead is not None, "every part of it may be absent"
        quote = ahead["quote"] or ""
        run = shapes.RUNS.get(quote, shapes.ESCAPED_RUN)
        end = _end(run.start, text, ahead.end())
        goes_on = _end(run.rest, text, end) > end
        if not goes_on and self._is_open(end) and not final:
            self._wait_at(out, start, ahead.end())
            return False
        self._let_go(out, ahead.end())
        value = names.Value(
            text[ahead.end() : end],
            quoted=bool(quote),
            assigned=ahead["sign"] == "=" and not ahead["blank"] and not behind.startswith((" ", "\t")),
            after_scheme=bool(ahead["scheme"]) or not ahead["sign"],
            followed_by="" if goes_on else text[end : end + 1],
        )
        if not ahead["sign"].startswith("::") and names.is_secret(kind, value):
            self._hide(out, end, run.rest)
        return True

    def _password_in_url(self, out: list[str], start: int, *, final: bool) -> bool:
        """Up to the last `@` before the path; without one it was a port."""
        text = self._text
        value_at = start + 1
        end = _end(shapes.PASSWORD_IN_URL, text, value_at)
        too_long = end - value_at > shapes.PASSWORD_IN_URL_LONGEST
        if end == len(text) and not too_long and not final:
            self._wait_at(out, start, value_at)
            return False
        self._let_go(out, value_at)
        at_sign = text.rfind("@", value_at, end)
        if too_long:
            self._hide(out, value_at, shapes.PASSWORD_IN_URL)
        elif at_sign > value_at and not names.is_reference(text[value_at:at_sign]):
            self._hide(out, at_sign, None)
        return True

    def _wait_at(self, out: list[str], start: int, value_at: int) -> None:
        """Lets the name and its sign go, but comes back to them when more is known of the value."""
        self._let_go(out, value_at)
        self._position = start


def _announced(behind: str, sign: str) -> names.Kind | None:
    """What kind of secret the text before a sign or blank, reversed, promises."""
    if sign in " \t" and behind[:6].lower() == "reraeb":
        return names.Kind.TOKEN
    named = (shapes.FLAG_BEHIND if sign in " \t" else shapes.NAME_BEHIND).match(behind)
    return None if named is None else names.kind_of(named[1][::-1])


def _end(run: re.Pattern[str], text: str, start: int) -> int:
    found = run.match(text, start)
    assert found is not None, "a run may be empty"
    return found.end()
