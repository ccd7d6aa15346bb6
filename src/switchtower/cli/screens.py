"""Where a view writes: the answer to stdout and the rest to stderr, or everything to stdout."""

from switchtower.cli import console, output

WITHDRAWN_NOTICE = "(the model call failed: the text above is void)"


class ProgressOutput:
    """The model's text to stdout, or nowhere; everything else to stderr.

    A terminal shows a message while it is streamed. A pipe or a file cannot take a void one back, so there a message is written
    when it is complete.
    """

    def __init__(self, *, answers: bool = True) -> None:
        self._answers = answers
        self._streams = output.is_terminal()
        self._message: list[str] = []

    def write_answer(self, text: str) -> None:
        if not self._answers:
            return
        self._message.append(text)
        if self._streams:
            console.end_line()
            output.write_answer(text)

    def end_answer(self) -> None:
        if self._message and not self._streams:
            output.write_answer("".join(self._message))
        self._message.clear()
        output.end_answer()

    def withdraw_answer(self) -> None:
        void = "".join(self._message).strip()
        self._message.clear()
        output.end_answer()
        if void and self._streams:
            console.print_line(WITHDRAWN_NOTICE, "dim")

    def write_piece(self, text: str) -> None:
        console.print_piece(console.strip_terminal_codes(text), "dim")

    def write_line(self, text: str, colour: str | None = None) -> None:
        console.print_line(text, colour)


class TranscriptOutput:
    """Everything to stdout, in the order in which it happened."""

    def __init__(self) -> None:
        self._in_piece = False
        self._in_answer = False

    def write_answer(self, text: str) -> None:
        self._end_piece()
        self._in_answer = True
        output.write_answer(text)

    def end_answer(self) -> None:
        self._in_answer = False
        output.end_answer()

    def withdraw_answer(self) -> None:
        void, self._in_answer = self._in_answer, False
        if void:
            self.write_line(WITHDRAWN_NOTICE, "dim")

    def write_piece(self, text: str) -> None:
        if not self._in_piece:
            output.end_answer()
            self._in_piece = True
        output.write_piece(console.escape_unprintable(console.strip_terminal_codes(text)), _paint_dim)

    def write_line(self, text: str, colour: str | None = None) -> None:
        self._end_piece()
        output.end_answer()
        text = console.escape_unprintable(text)
        output.write_line(console.paint(text, colour) if colour and console.supports_colour(1) else text)

    def _end_piece(self) -> None:
        if self._in_piece:
            self._in_piece = False
            output.end_answer()


def _paint_dim(text: str) -> str:
    return console.paint(text, "dim") if console.supports_colour(1) else text
