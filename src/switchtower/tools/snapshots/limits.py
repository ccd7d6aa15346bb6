"""How much of a workspace a snapshot covers. Beyond these it is refused or a file is left out; it never grows without bound."""

from msgspec import Struct

MiB = 1024 * 1024


class SnapshotLimits(Struct, frozen=True):
    seconds: float = 30.0
    """For taking or comparing. Bringing files back goes to its end once it has begun."""
    file_bytes: int = 20 * MiB
    """A larger file is left out."""
    new_bytes: int = 500 * MiB
    """What one snapshot may read that the one before had not."""
    repository_files: int = 200_000
    folder_files: int = 20_000
    """In a folder that is no repository, where nobody has said what is rubbish."""
    names_left_out: int = 200_000
    """Names of files that are not covered; they are remembered so that nobody takes them for new ones."""
    depth: int = 128
    """Folders inside folders; what lies deeper is left out."""
    diff_bytes: int = 1 * MiB
