"""Takes secrets out of text before it reaches the journal, a log or a wire. Pure: no I/O, no time, no state but what is fed.

`redactor` is the door that everybody else uses. Behind it, `stream` lets ordinary text pass and gives the rest to `scanner`,
which decides; `starts` and `shapes` hold its patterns, `names` judges `name = value`, `literals` knows the daemon's own values.
`questions` says how much of what a person decides about may be hidden at all.
"""

from switchtower.core.redact.patterns import MARK as MARK
from switchtower.core.redact.redactor import DEEPEST as DEEPEST
from switchtower.core.redact.redactor import LARGE as LARGE
from switchtower.core.redact.redactor import Redactor as Redactor
from switchtower.core.redact.stream import StreamRedactor as StreamRedactor
