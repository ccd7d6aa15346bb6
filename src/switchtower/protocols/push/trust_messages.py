"""Requests about the folders that the owner trusts. Ours, and spelled like the document's own. Knows nothing of the core."""

from typing import Annotated, Any

from msgspec import Meta, Struct

FolderPath = Annotated[str, Meta(min_length=1, max_length=4_096)]


# Requests


class ListTrustedFolders(Struct, frozen=True):
    pass


class TrustFolder(Struct, frozen=True):
    """From now on the folder's instructions count, and those of the folders below it."""

    path: FolderPath


class ForgetFolder(Struct, frozen=True):
    path: FolderPath


TrustRequest = ListTrustedFolders | TrustFolder | ForgetFolder

TRUST_REQUESTS: dict[str, type[TrustRequest]] = {
    "list_trusted_folders": ListTrustedFolders,
    "trust_folder": TrustFolder,
    "forget_folder": ForgetFolder,
}
TRUST_CAPABILITIES = ["folder_trust"]


# Answers


class TrustedFolder(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    since: int
    by: str


class TrustedFolders(Struct, frozen=True, forbid_unknown_fields=True):
    folders: list[TrustedFolder]


class FolderTrusted(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    """Links followed."""


class FolderForgotten(Struct, frozen=True, forbid_unknown_fields=True):
    wasTrusted: bool


TRUST_ANSWERS: dict[str, type[Any]] = {
    "list_trusted_folders": TrustedFolders,
    "trust_folder": FolderTrusted,
    "forget_folder": FolderForgotten,
}
