"""Reads one word: quotes, backslashes, expansions and the escapes of `$'…'`. Commands inside an expansion are passed to the
reader.

An expansion that only a running shell can evaluate (`$x`, `$(…)`, `{a,b}`) makes the word unknown and leaves its text as it
was written. Bash knows more escapes of `$'…'` than other shells, so a word with one is in doubt.
"""

import re
from collections.abc import Callable

from switchtower.core.policy.shell.script import ShellWord, WordSource

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


def unescape(text: str) -> str:
    return _ESCAPE.sub(_decode_escape, text)


def _decode_escape(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    if code[0] == "c" and len(code) > 1:
        return chr(ord(code[1]) & 0x1F)
    return _LETTERS.get(code, code)


_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,^=\-]+")
_PLAIN_IN_QUOTES = re.compile(r'[^"$`\\]+')
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_END = " \t\n;&|()"
_SPECIAL = "!#$*@-0123456789"
_BACKQUOTED = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_BACKQUOTED_ESCAPE = re.compile(r"\\([`\\$])")
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)


class _Word:
    """A word that is being read."""

    def __init__(self, source: WordSource) -> None:
        self.source = source
        self.pieces: list[str] = []
        self.known = True
        self.wild = False
        self.opened = self.closed = False

    def build(self, raw: str) -> ShellWord:
        if self.opened and self.closed and ("," in raw or ".." in raw):
            self.known = False
            self.source.add_doubt("has words in braces that the shell multiplies")
        # A bracket alone is the command `[`.
        return ShellWord("".join(self.pieces), self.known, self.wild and raw != "[")


def read_word(source: WordSource) -> ShellWord:
    """Reads from the source's position up to the end of the word. When nothing is read, the word is empty and the position
    unchanged.
    """
    word = _Word(source)
    start = source.at
    text = source.text
    while source.at < len(text):
        char = text[source.at]
        if plain := _PLAIN.match(text, source.at):
            word.pieces.append(plain[0])
            source.at = plain.end()
        elif char in "<>":
            if text[source.at + 1 : source.at + 2] != "(":
                break
            _process_substitution(word)
        elif char in _END:
            break
        else:
            _UNQUOTED.get(char, _literal)(word)
    return word.build(text[start : source.at])


def scan_document(source: WordSource) -> None:
    """Reads a here-document that the shell expands, only for the commands in its expansions."""
    word = _Word(source)
    while source.at < len(source.text):
        char = source.text[source.at]
        _IN_QUOTES.get(char, _literal)(word)


def _literal(word: _Word) -> None:
    source = word.source
    word.pieces.append(source.text[source.at])
    source.at += 1


def _wildcard(word: _Word) -> None:
    word.wild = True
    _literal(word)


def _open_brace(word: _Word) -> None:
    word.opened = True
    _literal(word)


def _close_brace(word: _Word) -> None:
    word.closed = word.opened
    _literal(word)


def _backslash(word: _Word) -> None:
    source = word.source
    escaped = source.text[source.at + 1 : source.at + 2]
    if escaped == "":
        source.add_doubt("ends in a backslash", unreadable=True)
    elif escaped == "\n":
        # Bash removes the pair before it searches for words and operators; at the edge of a word that can join two.
        source.add_doubt("breaks a line in the middle of a word", unreadable=True)
    else:
        word.pieces.append(escaped)
    source.at += 2


def _single_quotes(word: _Word) -> None:
    source = word.source
    end = source.text.find("'", source.at + 1)
    if end < 0:
        source.add_doubt("has a quote without an end", unreadable=True)
        end = len(source.text)
    word.pieces.append(source.text[source.at + 1 : end])
    source.at = end + 1


def _double_quotes(word: _Word) -> None:
    source = word.source
    source.at += 1
    while source.at < len(source.text):
        if plain := _PLAIN_IN_QUOTES.match(source.text, source.at):
            word.pieces.append(plain[0])
            source.at = plain.end()
            continue
        char = source.text[source.at]
        if char == '"':
            source.at += 1
            return
        _IN_QUOTES[char](word)
    source.add_doubt("has a quote without an end", unreadable=True)


def _backslash_in_quotes(word: _Word) -> None:
    source = word.source
    escaped = source.text[source.at + 1 : source.at + 2]
    if escaped == "\n":
        pass
    elif escaped and escaped in '$`"\\':
        word.pieces.append(escaped)
    else:
        word.pieces.append("\\" + escaped)
    source.at += 2


def _backquotes(word: _Word) -> None:
    source = word.source
    word.known = False
    quoted = _BACKQUOTED.match(source.text, source.at)
    if quoted is None:
        source.add_doubt("has a backquote without an end", unreadable=True)
        source.at = len(source.text)
        return
    word.pieces.append(quoted[0])
    source.at = quoted.end()
    source.add_doubt("uses what another command prints")
    source.read_quoted_commands(_BACKQUOTED_ESCAPE.sub(r"\1", quoted[1]))


def _dollar(word: _Word) -> None:
    source = word.source
    following = source.text[source.at + 1 : source.at + 2]
    if following == "'":
        _ansi_quotes(word)
    elif following == '"':
        source.add_doubt("has a text that the shell translates")
        word.known = False
        source.at += 1
    else:
        _dollar_in_quotes(word)


def _dollar_in_quotes(word: _Word) -> None:
    source = word.source
    start = source.at
    following = source.text[start + 1 : start + 2]
    if following == "(":
        source.add_doubt("uses what another command prints")
        source.at += 2
        source.read_nested()
    elif following == "{":
        source.add_doubt("uses a variable whose value is not known before it runs")
        _braced_expansion(word)
    elif following == "[":
        source.add_doubt("has the shell calculate")
        source.at += 2
    elif name := _NAME.match(source.text, start + 1):
        source.add_doubt(f"uses `${name[0][:60]}`, whose value is not known before it runs")
        source.at = name.end()
    elif following and following in _SPECIAL:
        source.add_doubt(f"uses `${following}`, whose value is not known before it runs")
        source.at += 2
    else:
        # `$?` is a number; a dollar before anything else means itself.
        source.at += 2 if following == "?" else 1
        word.pieces.append(source.text[start : source.at])
        return
    word.known = False
    word.pieces.append(source.text[start : source.at])


def _braced_expansion(word: _Word) -> None:
    source = word.source
    if not source.enter():
        return
    source.at += 2
    inside = _Word(source)
    while source.at < len(source.text):
        char = source.text[source.at]
        if char == "}":
            source.at += 1
            source.leave()
            return
        if char in "'\"":
            # The meaning of a quote here depends on the quotes around it.
            source.add_doubt("has quotes inside an expansion", unreadable=True)
        _IN_BRACES.get(char, _literal)(inside)
    source.add_doubt("has a brace without an end", unreadable=True)


def _ansi_quotes(word: _Word) -> None:
    source = word.source
    word.known = False
    quoted = _ANSI.match(source.text, source.at)
    if quoted is None:
        source.add_doubt("has a quote without an end", unreadable=True)
        source.at = len(source.text)
        return
    source.add_doubt("spells a text in escapes that not every shell knows")
    word.pieces.append(unescape(quoted[1]))
    source.at = quoted.end()


def _process_substitution(word: _Word) -> None:
    source = word.source
    start = source.at
    source.add_doubt("hands a command another one's output as a file")
    source.at += 2
    source.read_nested()
    word.known = False
    word.pieces.append(source.text[start : source.at])


_Step = Callable[[_Word], None]
_UNQUOTED: dict[str, _Step] = {
    "\\": _backslash,
    "'": _single_quotes,
    '"': _double_quotes,
    "`": _backquotes,
    "$": _dollar,
    "*": _wildcard,
    "?": _wildcard,
    "[": _wildcard,
    "{": _open_brace,
    "}": _close_brace,
}
_IN_QUOTES: dict[str, _Step] = {"\\": _backslash_in_quotes, "`": _backquotes, "$": _dollar_in_quotes}
_IN_BRACES: dict[str, _Step] = {
    "\\": _backslash_in_quotes,
    "'": _single_quotes,
    '"': _double_quotes,
    "`": _backquotes,
    "$": _dollar,
}
