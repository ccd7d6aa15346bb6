"""Removes secrets from text before it reaches the journal, a log or a wire. Pure: no I/O, no time, no state but what is fed.

`redactor` is the entry point for all other packages. Behind it, `stream` passes ordinary text and gives the rest to `scanner`,
which decides; `start_patterns` and `patterns` have its patterns, and `names` judges `name = value`. `questions` limits how
much of an approval's text may be hidden at all.
"""

from switchtower.core.redact.patterns import MARK as MARK
from switchtower.core.redact.redactor import DEEPEST as DEEPEST
from switchtower.core.redact.redactor import LARGE as LARGE
from switchtower.core.redact.redactor import Redactor as Redactor
from switchtower.core.redact.stream import StreamRedactor as StreamRedactor
