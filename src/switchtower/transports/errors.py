"""The errors of a listener that cannot start. The docstring is the message; each error has its subject and a remedy."""


class CannotListen(Exception):
    """Cannot listen."""

    def __init__(self, about: str, *, hint: str) -> None:
        super().__init__(about)
        self.about = about
        self.hint = hint

    @property
    def message(self) -> str:
        return f"{(type(self).__doc__ or '').strip().rstrip('.')}: {self.about}"

    def __str__(self) -> str:
        return f"{self.message}; hint: {self.hint}"


class AddressInUse(CannotListen):
    """Another process already listens there."""


class AddressUnusable(CannotListen):
    """The address cannot be listened on."""


class PathTooLong(CannotListen):
    """The path is too long for a Unix socket."""


class PathTaken(CannotListen):
    """Something that is not a socket stands where the socket should be."""


class FolderNotPrivate(CannotListen):
    """Other users could replace a socket in this folder."""
