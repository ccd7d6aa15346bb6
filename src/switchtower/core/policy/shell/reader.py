"""Finds every simple command in a text: behind `&&`, `;`, `|`, `&` and newlines, in groups, subshells and expansions.

It reads on whatever comes, so that a command behind a mistake is still found; the doubts say that there was one. Takes
time in proportion to the text and gives up, in doubt, on one that is too long, too deep or too much.
"""

import re
from collections.abc import Callable

from switchtower.core.policy.shell import documents, harvest, simple, words
from switchtower.core.policy.shell.script import Redirect, Script, ShellWord

LONGEST = 64 * 1024
_DEEPEST = 24

# Control characters, blanks that are none to a shell, marks that turn or hide text, halves of characters.
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
        self._found = harvest.ScriptBuilder()
        self._announced: list[documents.HereDocument] = []

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
        """Reads another text and takes over what it holds."""
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
        """Up to the closing parenthesis or brace, which is taken too, or to the end."""
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
                    continue  # A pipe goes on behind the end of its line.
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
        """What separates commands here; "" is the end and None no separator."""
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
        command = simple.CommandBuilder()
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

    def _read_word(self, command: simple.CommandBuilder) -> None:
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
            # Bash works off the quotes of this one twice.
            self.add_doubt("joins a descriptor with something unusual", unreadable=True)
        return Redirect(operator, target)

    def _read_here_redirect(self, operator: str) -> Redirect:
        announced = documents.parse_here_document(self.text, self.at, operator)
        if announced is None:
            self.add_doubt("announces a text in a way that is hard to read", unreadable=True)
            words.read_word(self)
        else:
            document, self.at = announced
            self._announced.append(document)
        return Redirect(operator, ShellWord(""))

    def _read_documents(self) -> None:
        """The here-documents that begin on this line, one behind the other."""
        announced, self._announced = self._announced, []
        for document in announced:
            body = documents.read_body(document, self.text, self.at)
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
        """Blanks, comments and broken lines; they may stand wherever a word may begin."""
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char in " \t":
                self.at += 1
            elif char == "\\" and text[self.at + 1 : self.at + 2] == "\n":
                # Bash takes the pair out before it looks for operators: without a blank beside it, it can join two.
                if text[self.at - 1 : self.at] not in (" ", "\t", "\n") and text[self.at + 2 : self.at + 3] not in (" ", "\t"):
                    self.add_doubt("breaks a line in the middle of a word", unreadable=True)
                self.at += 2
            elif char == "#":
                newline = text.find("\n", self.at)
                self.at = len(text) if newline < 0 else newline
            else:
                return
