"""Takes secrets out of text before it reaches the journal, a log or a wire. Pure: no I/O, no time, no state but what is fed.

`names` judges `name = value`, `shapes` knows what secrets look like, `literals` knows the daemon's own values, `stream`
is the one scanner, and `redactor` is the door that everybody else uses.
"""

from switchtower.core.redact.redactor import Redactor as Redactor
from switchtower.core.redact.shapes import MARK as MARK
from switchtower.core.redact.stream import StreamRedactor as StreamRedactor
