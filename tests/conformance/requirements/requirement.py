"""What a protocol's document demands, as data: an id that tests carry, where it stands, and what it means in our own words."""

from typing import NamedTuple


class Requirement(NamedTuple):
    id: str
    """`protocol:topic:name`; tests carry it as `@pytest.mark.requirement`."""
    section: str
    """The document's heading, or `Clients in the field` for what its existing clients were written against."""
    behaviour: str
    divergence: str | None = None
    """Where we knowingly do something else, and why. Such an entry needs no test."""
