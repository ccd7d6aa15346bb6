"""Arguments that several commands take, read in one way."""

import sys

import click


def message(text: str) -> str:
    """What to send; `-` reads it from stdin. Bytes that are no UTF-8 become marks, as the wire can carry no others."""
    if text == "-":
        text = sys.stdin.buffer.read().decode(errors="replace")
    if not text.strip():
        raise click.UsageError("TEXT is empty")
    return text.encode(errors="surrogateescape").decode(errors="replace")
