"""Where a view writes: the answer to stdout and the rest to stderr, or everything to stdout."""

from switchtower.cli import console, output


class Progress:
    """The model's text to stdout, or nowhere; everything else to stderr."""

    def __init__(self, *, answers: bool = True) -> None:
        self._answers = answers

    def answer(self, text: str) -> None:
        if self._answers:
            console.end_piece()
            output.answer(text)

    def end_answer(self) -> None:
        output.end_answer()

    def piece(self, text: str) -> None:
        console.piece(console.program_text(text), "dim")

    def line(self, text: str, colour: str | None = None) -> None:
        console.say(text, colour)


class Transcript:
    """Everything to stdout, in the order in which it happened."""

    def __init__(self) -> None:
        self._in_piece = False

    def answer(self, text: str) -> None:
        self._leave_piece()
        output.answer(text)

    def end_answer(self) -> None:
        output.end_answer()

    def piece(self, text: str) -> None:
        if not self._in_piece:
            output.end_answer()
            self._in_piece = True
        output.piece(console.printable(console.program_text(text)), _dimmed)

    def line(self, text: str, colour: str | None = None) -> None:
        self._leave_piece()
        output.end_answer()
        text = console.printable(text)
        output.line(console.paint(text, colour) if colour and console.has_colour(1) else text)

    def _leave_piece(self) -> None:
        if self._in_piece:
            self._in_piece = False
            output.end_answer()


def _dimmed(text: str) -> str:
    return console.paint(text, "dim") if console.has_colour(1) else text
