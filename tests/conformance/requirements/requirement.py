"""A requirement of a protocol's document as data: an id that tests carry, its section, and its meaning in our own words."""

from typing import NamedTuple


class Requirement(NamedTuple):
    id: str
    """`protocol:topic:name`; tests carry it as `@pytest.mark.requirement`."""
    section: str
    """The document's heading, or `Clients in the field` for what its existing clients were written against."""
    behaviour: str
    divergence: str | None = None
    """The behaviour in which we deviate on purpose, and why. Such an entry needs no test."""
