"""Finds every simple command in a text: behind `&&`, `;`, `|`, `&` and newlines, in groups, subshells, expansions and
here-documents.

It continues after errors, so that a command behind a mistake is still found; the doubts report the mistake. It takes time in
proportion to the text and stops, with a doubt, at a text that is too long, too deep or has too many commands.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from switchtower.core.policy.shell import script, words
from switchtower.core.policy.shell.script import Redirect, Script, ShellCommand, ShellWord, WordSource

_DELIMITER = re.compile(r"""(?:(?P<quote>['"])(?P<quoted>[\w.-]+)(?P=quote)|(?P<escape>\\?)(?P<bare>[\w.-]+))(?=[\s;&|<>()]|$)""")


class HereDocument(Struct, frozen=True):
    """A here-document that `<<` has announced."""

    end: str
    """The line that ends it."""
    expanded: bool
    indented: bool


class HereDocumentBody(Struct, frozen=True):
    text: str
    ends_at: int
    """The position behind the line that ends it."""
    is_ended: bool


def parse_here_document(text: str, at: int, operator: str) -> tuple[HereDocument, int] | None:
    """Parses the text behind `<<` or `<<-`; returns the here-document and the position behind it. `None` when it is ambiguous."""
    delimiter = _DELIMITER.match(text, at)
    if delimiter is None:
        return None
    end = delimiter["quoted"] or delimiter["bare"]
    expanded = not delimiter["quote"] and not delimiter["escape"]
    return HereDocument(end, expanded=expanded, indented=operator == "<<-"), delimiter.end()


def read_body(document: HereDocument, text: str, start: int) -> HereDocumentBody:
    at = start
    while at < len(text):
        newline = text.find("\n", at)
        line_end = len(text) if newline < 0 else newline
        line = text[at:line_end]
        behind = line_end if newline < 0 else line_end + 1
        if (line.lstrip("\t") if document.indented else line) == document.end:
            return HereDocumentBody(text[start:at], behind, is_ended=True)
        at = behind
    return HereDocumentBody(text[start:], len(text), is_ended=False)


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=", re.ASCII)
_DESCRIPTOR_NAME = re.compile(r"\{\w+\}")
_SKIPPED = frozenset({"if", "then", "elif", "else", "fi", "!", "{", "}", "while", "until", "do", "done"})
_LOOPS = frozenset({"while", "until"})
_DOUBTED = {
    "for": "has a loop",
    "select": "has a loop",
    "case": "chooses between commands",
    "esac": "chooses between commands",
    "function": "defines a function",
    "coproc": "starts a command beside it",
    "[[": "tests a condition that can run commands",
    "in": "has a loop",
}


class CommandBuilder:
    def __init__(self) -> None:
        self.redirects: list[Redirect] = []
        self._words: list[ShellWord] = []
        self._assignments: list[str] = []
        self._values: list[ShellWord] = []

    @property
    def is_empty(self) -> bool:
        return not (self._words or self._assignments or self.redirects)

    def add(self, word: ShellWord, raw: str, next_character: str, source: WordSource) -> None:
        """`raw` is the word as it is written: only without quotes can it set a variable or be grammar."""
        if self._words:
            self._words.append(word)
        elif raw in _SKIPPED and not self._assignments and not self.redirects:
            if raw in _LOOPS:
                source.add_doubt("has a loop")
        elif assignment := _ASSIGNMENT.match(raw):
            if assignment[2] or "(" in raw or next_character == "(":
                source.add_doubt("sets a variable in a way that can run commands", unreadable=True)
            self._assignments.append(assignment[1])
            self._values.append(ShellWord(word.text.partition("=")[2], word.known, word.wild))
        else:
            if raw in _DOUBTED:
                source.add_doubt(_DOUBTED[raw], unreadable=True)
            self._words.append(word)
        if next_character in ("<", ">") and _DESCRIPTOR_NAME.fullmatch(raw):
            source.add_doubt("lets the shell choose a descriptor")

    def build(self, inner: tuple[int, int]) -> ShellCommand:
        return ShellCommand(tuple(self._words), tuple(self._assignments), tuple(self._values), tuple(self.redirects), inner)


LONGEST = 64 * 1024
_DEEPEST = 24

# Control characters, Unicode blanks that a shell does not treat as blanks, marks that reverse or hide text, lone surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\ufff0-\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
_REDIRECT = re.compile(r"(&>>|&>)|[0-9]*(>&-|<&-|>>|>\||>&|<<<|<<-|<<|<&|<>|>(?!\()|<(?!\())")
_PLAIN_TARGET = re.compile(r"[\w./~][\w./~-]*")
_BRACE_ALONE = re.compile(r"[{}](?=[ \t\n;&|()<>]|$)")


def parse_script(text: str) -> Script:
    if len(text) > LONGEST:
        return Script(text[:LONGEST], (), doubts=("is too long to be read",), unreadable=True)
    reader = _ScriptReader(text)
    reader.read_to_the_end()
    return reader.build_script()


class _ScriptReader:
    def __init__(self, text: str, depth: int = 0) -> None:
        self.text = text
        self.at = 0
        self._depth = depth
        self._found = script.ScriptBuilder()
        self._announced: list[HereDocument] = []

    def build_script(self) -> Script:
        return self._found.build_script(self.text)

    def add_doubt(self, reason: str, *, unreadable: bool = False) -> None:
        self._found.add_doubt(reason, unreadable=unreadable)

    def read_to_the_end(self) -> None:
        if _UNSEEN.search(self.text):
            self.add_doubt("has characters that cannot be seen", unreadable=True)
        self._read_list("")
        if self._announced:
            self.add_doubt("announces a text that does not follow", unreadable=True)

    def enter(self) -> bool:
        if self._depth >= _DEEPEST:
            self._give_up("is nested too deeply to be read")
            return False
        self._depth += 1
        return True

    def leave(self) -> None:
        self._depth -= 1

    def read_nested(self) -> None:
        if not self.enter():
            return
        announced = bool(self._announced)
        self._read_list(")")
        if announced or self._announced:
            self.add_doubt("announces a text around or inside an expansion", unreadable=True)
        self.leave()

    def read_quoted_commands(self, text: str) -> None:
        self._absorb(text, _ScriptReader.read_to_the_end)

    def _absorb(self, text: str, how: "Callable[[_ScriptReader], None]") -> None:
        """Parses another text and adds its commands."""
        if not self.enter():
            return
        other = _ScriptReader(text, self._depth)
        how(other)
        self.leave()
        self._found.merge(other._found)

    def _give_up(self, reason: str) -> None:
        self.add_doubt(reason, unreadable=True)
        self.at = len(self.text)

    def _read_list(self, closer: str) -> None:
        """Reads up to and including the closing parenthesis or brace, or to the end."""
        stages: list[tuple[int, int]] = []
        start = len(self._found.commands)
        while True:
            self._skip_blanks()
            operator = self._read_operator(in_braces=closer == "}")
            if operator == "|":
                stages.append((start, len(self._found.commands)))
                start = len(self._found.commands)
                self.at += 2 if self.text.startswith("|&", self.at) else 1
                continue
            if operator == "\n":
                self.at += 1
                self._read_documents()
                if stages and start == len(self._found.commands):
                    continue  # a pipe continues after the end of its line
            if operator is not None:
                if stages:
                    self._found.pipelines.append((*stages, (start, len(self._found.commands))))
                stages, start = [], len(self._found.commands)
            if operator == "":
                if closer:
                    self.add_doubt(f"has no `{closer}` to end a group", unreadable=True)
                return
            if operator in (")", "}"):
                self.at += 1
                if operator == closer:
                    return
                self.add_doubt(f"has a `{operator}` without a beginning", unreadable=True)
            elif operator in ("&&", "||", ";", "&"):
                self.at += len(operator)
            elif operator is None:
                self._read_command_or_group()

    def _read_operator(self, *, in_braces: bool = False) -> str | None:
        """Returns the operator that separates commands here; "" is the end, and None means no separator."""
        pair = self.text[self.at : self.at + 2]
        if pair in ("&&", "||"):
            return pair
        if pair in ("&>", ""):
            return None if pair else ""
        if in_braces and pair[0] == "}" and _BRACE_ALONE.match(self.text, self.at):
            return "}"
        return pair[0] if pair[0] in "\n;&|)" else None

    def _read_command_or_group(self) -> None:
        if self._found.has_too_many_commands:
            self._give_up("has too many commands")
        elif self.text[self.at] == "(":
            if self.text.startswith("((", self.at):
                self.add_doubt("has the shell calculate")
            self.at += 1
            self.read_nested()
        elif _BRACE_ALONE.match(self.text, self.at) and self.text[self.at] == "{":
            self.at += 1
            if self.enter():
                self._read_list("}")
                self.leave()
        else:
            self._read_command()

    def _read_command(self) -> None:
        first_inner = len(self._found.commands)
        command = CommandBuilder()
        while True:
            self._skip_blanks()
            if self.at >= len(self.text) or self._read_operator() is not None:
                break
            if self.text[self.at] == "(":
                self.add_doubt("has a parenthesis in the middle of a command", unreadable=True)
                break
            if redirect := _REDIRECT.match(self.text, self.at):
                self.at = redirect.end()
                command.redirects.append(self._read_redirect(redirect[1] or redirect[2]))
                continue
            self._found.words += 1
            if self._found.has_too_many_words:
                self._give_up("has too many words")
                break
            self._read_word(command)
        if not command.is_empty:
            self._found.commands.append(command.build((first_inner, len(self._found.commands))))

    def _read_word(self, command: CommandBuilder) -> None:
        start = self.at
        word = words.read_word(self)
        raw = self.text[start : self.at]
        self._found.wild_words += word.wild
        if self._found.has_too_many_wildcards:
            self._give_up("has too many wildcards")
        if self.at == start:
            self.add_doubt(f"has a `{self.text[start]}` that says nothing here", unreadable=True)
            self.at += 1
        else:
            command.add(word, raw, self.text[self.at : self.at + 1], self)

    def _read_redirect(self, operator: str) -> Redirect:
        self._found.words += 1
        self._skip_blanks()
        if operator in ("<<", "<<-"):
            return self._read_here_redirect(operator)
        if operator in (">&-", "<&-"):
            return Redirect(operator, ShellWord(""))
        start = self.at
        target = words.read_word(self)
        if self.at == start:
            self.add_doubt("has a redirection to nowhere", unreadable=True)
        if operator != "<<<" and (target.wild or "$?" in target.text):
            self.add_doubt("has a redirection to a file that is not written out")
        if operator in (">&", "<&") and not _PLAIN_TARGET.fullmatch(self.text, start, self.at):
            # Bash removes the quotes of this one twice.
            self.add_doubt("joins a descriptor with something unusual", unreadable=True)
        return Redirect(operator, target)

    def _read_here_redirect(self, operator: str) -> Redirect:
        announced = parse_here_document(self.text, self.at, operator)
        if announced is None:
            self.add_doubt("announces a text in a way that is hard to read", unreadable=True)
            words.read_word(self)
        else:
            document, self.at = announced
            self._announced.append(document)
        return Redirect(operator, ShellWord(""))

    def _read_documents(self) -> None:
        """Reads the here-documents that start on this line, in order."""
        announced, self._announced = self._announced, []
        for document in announced:
            body = read_body(document, self.text, self.at)
            self.at = body.ends_at
            if not body.is_ended:
                self.add_doubt("announces a text that does not end", unreadable=True)
            self._found.documents.append(body.text)
            if document.expanded and re.search(r"[$`\\]", body.text):
                self.add_doubt("has a text that the shell fills in")
                if "\\" in body.text:
                    self.add_doubt("has a text with backslashes that the shell works off", unreadable=True)
                self._absorb(body.text, words.scan_document)

    def _skip_blanks(self) -> None:
        """Skips blanks, comments and line continuations; they may occur wherever a word may start."""
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char in " \t":
                self.at += 1
            elif char == "\\" and text[self.at + 1 : self.at + 2] == "\n":
                # Bash removes the pair before it searches for operators: without a blank beside it, it can join two.
                if text[self.at - 1 : self.at] not in (" ", "\t", "\n") and text[self.at + 2 : self.at + 3] not in (" ", "\t"):
                    self.add_doubt("breaks a line in the middle of a word", unreadable=True)
                self.at += 2
            elif char == "#":
                newline = text.find("\n", self.at)
                self.at = len(text) if newline < 0 else newline
            else:
                return
