"""Decides what is a secret. It takes suspicious text in any pieces and returns it without its secrets.

The way the text was cut makes no difference, because every decision depends only on the text around its place: a bounded part
of the output before it, and a lookahead that it waits for. Undecided text is held back, and that is never more than a few
hundred characters; the rest of a secret that is already marked is dropped as it arrives.
"""

import re
from collections.abc import Callable
from functools import cache

from switchtower.core.redact import names, patterns, start_patterns

LONGEST_FOUND = 256
_MANY_SIGNS = 256
"""In shorter text, a decision about each sign costs less than a search for all hints."""


class SecretScanner:
    __slots__ = (
        "_anchor",
        "_before",
        "_done",
        "_floor",
        "_has_started",
        "_hidden",
        "_named",
        "_open_from",
        "_out",
        "_pem_left",
        "_position",
        "_rest",
        "_text",
        "_urls",
        "found",
    )

    def __init__(self, context: str, preceding: str = "") -> None:
        """`preceding` was released although it is undecided: it may be the start of a prefix."""
        self._text = context + preceding
        """Released text that a decision may still depend on, followed by undecided text."""
        self._position = len(context)
        """Everything in `_text` before this position is decided."""
        self._done = len(self._text)
        """Everything in `_text` before this position is released; a name and its sign are released before the value is
        decided.
        """
        self._floor = 0
        """The end of the last secret in `_text`. Before it, decisions see its mark and the output before that."""
        self._before = ""
        """The end of the output before `_floor`."""
        self._rest: re.Pattern[str] | None = None
        """The continuation of a secret whose mark is already released; it is dropped."""
        self._pem_left = 0
        """The number of characters that a PEM block may still drop; 0 outside of one."""
        self._has_started = False
        """True when the undecided text contains the start of a secret, and not only of the text that introduces one."""
        self._out: list[str] = []
        self._hidden = ""
        """The start of the secret that was hidden last, as long as it may continue."""
        self.found: list[str] = []
        """The secrets that were hidden whole since this was last emptied; not those of many lines."""
        self._anchor = self._open_from = -1
        """The position of the next possible token, and the position from which the text may be the start of one; -1 when
        unknown.
        """
        self._named: list[tuple[int, int]] = []
        """Regions in `_text` where a sign may have the name of a secret before it, the last first."""
        self._urls: list[tuple[int, int]] = []
        """Regions where a colon may have a user's name in a URL before it."""

    def scan(self, more: str, *, final: bool = False) -> str:
        """Decides as much as can be decided; everything, when `final`."""
        self._text += more
        self._has_started = False
        self._find_hints()
        self._anchor = self._open_from = -1
        while self._swallow(final=final) and self._decide_next(final=final):
            pass
        unneeded = max(self._floor, self._position - patterns.CONTEXT)
        if unneeded > 0:
            self._text = self._text[unneeded:]
            self._position -= unneeded
            self._done -= unneeded
            self._floor = 0
        if final:
            self._end_secret()
        redacted = "".join(self._out)
        self._out.clear()
        return redacted

    def settle(self) -> str:
        """Releases held text, unless a secret has started in it; all of it stays undecided."""
        if self._rest is not None or self._pem_left or self._has_started:
            return ""
        held = self._text[self._done :]
        self._done = len(self._text)
        return held

    def take_context(self) -> str | None:
        """Returns the context to continue from; None while text is held or dropped."""
        if self._position < len(self._text) or self._rest is not None or self._pem_left:
            return None
        return self._read_context(self._position)

    def _release(self, end: int) -> None:
        """Everything up to `end` is decided and harmless."""
        if end > self._done:
            self._end_secret()
            self._out.append(self._text[self._done : end])
            self._done = end
        self._position = end

    def _end_secret(self) -> None:
        if self._hidden:
            if len(self._hidden) <= LONGEST_FOUND:
                self.found.append(self._hidden)
            self._hidden = ""

    def _hide(self, end: int, rest: re.Pattern[str] | None = None) -> None:
        """Everything not yet released up to `end` is a secret, and so is all of `rest` that follows."""
        end = max(end, self._done)
        self._end_secret()
        self._hidden = self._text[min(self._position, self._done) : end]
        self._out.append(patterns.MARK)
        self._before = self._read_context(self._done) + patterns.MARK
        self._skip(end)
        self._rest = rest

    def _skip(self, end: int) -> None:
        self._done = self._position = self._floor = end

    def _read_context(self, start: int) -> str:
        """Returns the output right before this position, as far back as any decision may depend on."""
        return (self._before + self._text[max(self._floor, start - patterns.CONTEXT) : start])[-patterns.CONTEXT :]

    def _is_open(self, end: int) -> bool:
        """Returns whether a run that ends here may continue: the text ends here too, or in an escape or dot that depends on
        what follows.
        """
        return len(self._text) - end <= 3 and not self._text[end:].strip("\\.")

    def _swallow(self, *, final: bool) -> bool:
        """Drops the rest of a secret; False when it may continue beyond the end."""
        if self._pem_left and not self._swallow_pem(final=final):
            return False
        if self._rest is not None:
            rest = _find_end(self._rest, self._text, self._position)
            if len(self._hidden) <= LONGEST_FOUND:
                self._hidden += self._text[self._position : rest]
            self._skip(rest)
            if self._is_open(self._position) and not final:
                return False
            self._rest = None
        return True

    def _swallow_pem(self, *, final: bool) -> bool:
        limit = self._position + self._pem_left
        found = patterns.PEM_END.search(self._text, self._position, limit)
        if found is not None:
            self._skip(found.end() if found[0].startswith("-") else found.start())
        elif limit <= len(self._text):
            self._skip(limit)
            self._rest = patterns.TOKEN_REST
        elif final:
            self._skip(len(self._text))
        else:
            dropped = max(0, len(self._text) - patterns.PEM_END_LONGEST - self._position)
            self._pem_left -= dropped
            self._skip(self._position + dropped)
            return False
        self._pem_left = 0
        return True

    def _decide_next(self, *, final: bool) -> bool:
        """Moves to the next place of interest and decides about it; False when there is none, or when it has to wait."""
        text = self._text
        if self._open_from < self._position:
            self._open_from = len(text) if final else start_patterns.find_open_start(text, self._position)
        if self._anchor < self._position:
            found = _compile_interest()(text, self._position)
            self._anchor = len(text) if found is None else found.start()
        anchor = self._anchor
        sign = self._find_next_sign(min(anchor, self._open_from))
        if sign is not None:
            self._release(sign)
            return self._decide_sign(sign, final=final)
        if anchor >= self._open_from:
            # The start of something at the end may as well be part of a token that started before it: `glpat--` and a PEM block.
            while anchor < len(text):
                if (decided := self._decide_token(anchor, final=final, before=self._open_from)) is not None:
                    return decided
                found = _compile_interest()(text, anchor + 1)
                anchor = len(text) if found is None else found.start()
            self._release(self._open_from)
            return False
        if (decided := self._decide_token(anchor, final=final)) is not None:
            return decided
        if (decided := self._decide_form(anchor, final=final)) is not None:
            return decided
        if announced := _compile_announced().match(text, anchor):
            self._release(anchor)
            if start_patterns.is_boundary(text, anchor):
                return self._decide_value(anchor, announced.end() - 1, names.classify_name(announced[0]), final=final)
        elif begin := patterns.PEM_BEGIN.match(text, anchor):
            self._release(anchor)
            return self._decide_pem(begin.end(), final=final)
        elif _compile_partial_pem().match(text, anchor) and not final:
            self._release(anchor)
            return False
        self._release(anchor + 1)
        return True

    def _find_next_sign(self, end: int) -> int | None:
        """Returns the next sign before `end` that may have the name of a secret, or the name of a user in a URL, before it."""
        sign = self._find_next_in(self._named, start_patterns.SIGN, end)
        if not self._urls:
            return sign
        colon = self._find_next_in(self._urls, start_patterns.COLON, end if sign is None else sign)
        return sign if colon is None else colon

    def _find_hints(self) -> None:
        if len(self._text) - self._position < _MANY_SIGNS:
            self._named, self._urls = [(0, len(self._text))], []
            return
        named, urls = list[tuple[int, int]](), list[tuple[int, int]]()
        for hint in start_patterns.find_hints(self._text):
            (urls if hint[0] == start_patterns.URL else named).append((hint.start(), hint.end() + patterns.CONTEXT))
        if self._before:
            named.insert(0, (0, patterns.CONTEXT))
            if start_patterns.URL in self._before:
                urls.insert(0, (0, patterns.CONTEXT))
        self._named, self._urls = named[::-1], urls[::-1]

    def _find_next_in(self, regions: list[tuple[int, int]], pattern: re.Pattern[str], end: int) -> int | None:
        while regions:
            first, last = regions[-1]
            if first >= end:
                return None
            if last > self._position:
                found = pattern.search(self._text, max(first, self._position), min(last, end))
                if found is not None:
                    return found.start()
                if last > end:
                    return None
            regions.pop()
        return None

    def _decide_token(self, anchor: int, *, final: bool, before: int | None = None) -> bool | None:
        """None: no token has its anchor here, or none that starts before the given position."""
        text = self._text
        for prefix, at in start_patterns.find_prefixes(text, anchor):
            start = anchor - at
            if before is not None and start >= before:
                continue
            if start < self._position or not text.startswith(prefix, start) or not start_patterns.is_boundary(text, start):
                continue
            body = start_patterns.find_body(prefix)
            after = start + len(prefix)
            if (needed := body.needs.match(text, after)) is not None:
                self._release(start)
                self._hide(needed.end(), body.rest)
                return True
            if not final and body.so_far.match(text, after):
                self._release(start)
                # A short prefix may also start a word; words have no capitals and digits after it.
                self._has_started = len(prefix) > _SHORT_PREFIX or not _WORDLIKE.match(text, after)
                return False
        return None

    def _decide_form(self, anchor: int, *, final: bool) -> bool | None:
        """None: no form starts here."""
        text = self._text
        is_open = False
        for name, whole, partly, introduction, rest in start_patterns.build_form_patterns(text[anchor]):
            if (form := whole.match(text, anchor)) is not None:
                if not self._is_in_position(name, anchor):
                    continue
                self._release(form.end())
                self._hide(form.end(), rest)
                return True
            if not final and partly.match(text, anchor) and self._is_in_position(name, anchor):
                is_open = True
                begun = introduction.match(text, anchor)
                self._has_started = self._has_started or (begun is not None and begun.end() < len(text))
        if is_open:
            self._release(anchor)
            return False
        return None

    def _is_in_position(self, name: str, anchor: int) -> bool:
        """Returns whether the text before it makes it a secret."""
        match name:
            case "mysql":
                return patterns.MYSQL_BEHIND.search(self._read_context(anchor)) is not None
            case "netrc":
                return patterns.NETRC_BEHIND.search(self._read_context(anchor - len("pass"))) is not None
            case "crypt":
                return start_patterns.is_boundary(self._text, anchor)
            case _:
                return True

    def _decide_pem(self, body: int, *, final: bool) -> bool:
        if patterns.PEM_BODY.match(self._text, body):
            self._hide(body)
            self._hidden = ""
            self._pem_left = patterns.PEM_LONGEST
        elif patterns.PEM_BODY_CUT_SHORT.match(self._text, body) and not final:
            self._has_started = True
            return False
        else:
            self._release(body)
        return True

    def _decide_sign(self, start: int, *, final: bool) -> bool:
        behind = self._read_context(start)[::-1]
        if self._text[start] == ":" and patterns.USER_BEHIND.match(behind):
            return self._decide_url(start, final=final)
        named = patterns.NAME_BEHIND.match(behind)
        return self._decide_value(start, start, names.classify_name(named[1][::-1]) if named else None, final=final)

    def _decide_value(self, start: int, sign: int, kind: names.SecretKind | None, *, final: bool) -> bool:
        """At the sign or blank behind a name: the value ahead may be a secret, the name stays."""
        if kind is None:
            self._release(sign + 1)
            return True
        text = self._text
        ahead = patterns.VALUE_AHEAD.match(text, sign)
        assert ahead is not None, "every part of it may be absent"
        value_at = ahead.end()
        quote = ahead["quote"] or ""
        run = patterns.find_run(quote) if kind not in _COOKIES else _COOKIES[kind]
        judged = _find_end(run.start, text, value_at)
        goes_on = _find_end(run.rest, text, judged) > judged
        if not goes_on and self._is_open(judged) and not final:
            self._has_started = judged > value_at and (kind is not names.SecretKind.KEY or judged - value_at > _SHORT_PREFIX)
            return self._wait_at(start, value_at)
        self._release(value_at)
        value = names.AssignedValue(
            text[value_at:judged],
            quoted=bool(quote),
            assigned=ahead["sign"] == "=" and not ahead["blank"] and text[sign - 1] not in " \t",
            after_scheme=bool(ahead["scheme"]) or not ahead["sign"],
            followed_by="" if goes_on else text[judged : judged + 1],
        )
        marked = patterns.MARK[:-1] in value.text
        if not marked and ahead["sign"] != "::" and names.is_secret(kind, value):
            self._hide(judged, run.rest)
        return True

    def _decide_url(self, colon: int, *, final: bool) -> bool:
        """Behind `scheme://user:` a password extends to the last `@` before the path; without one it is a port."""
        text = self._text
        value_at = colon + 1
        end = _find_end(patterns.PASSWORD_IN_URL, text, value_at)
        too_long = end - value_at > patterns.PASSWORD_IN_URL_LONGEST
        if end == len(text) and not too_long and not final:
            self._has_started = not patterns.PORT.fullmatch(text, value_at)
            return self._wait_at(colon, value_at)
        self._release(value_at)
        at_sign = text.rfind("@", value_at, end)
        if too_long:
            self._hide(value_at, patterns.PASSWORD_IN_URL)
        elif at_sign > value_at and not names.is_reference(text[value_at:at_sign]):
            self._hide(at_sign)
        return True

    def _wait_at(self, start: int, value_at: int) -> bool:
        """Releases the name and its sign, and decides about them again when more of the value has arrived."""
        self._release(value_at)
        self._position = start
        return False


class SpanFinder(SecretScanner):
    """Finds the positions of the secrets in one whole text, and releases nothing."""

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


_SHORT_PREFIX = 3
_WORDLIKE = re.compile(r"[a-z_-]*\Z")

_COOKIES = {names.SecretKind.COOKIE: patterns.COOKIE_RUN, names.SecretKind.SET_COOKIE: patterns.SET_COOKIE_RUN}


@cache
def _compile_interest() -> Callable[..., re.Match[str] | None]:
    """The pattern is compiled at the first suspicious text, because compiling takes long and the daemon has to start quickly."""
    return re.compile(start_patterns.ANY, re.ASCII).search


@cache
def _compile_announced() -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(start_patterns.ANNOUNCEMENTS)})[ \\t]")


@cache
def _compile_partial_pem() -> re.Pattern[str]:
    return re.compile(r"-----BEGIN [A-Za-z0-9 ]{0,49}-{0,4}\Z")


def _find_end(run: re.Pattern[str], text: str, start: int) -> int:
    found = run.match(text, start)
    assert found is not None, "a run may be empty"
    return found.end()
