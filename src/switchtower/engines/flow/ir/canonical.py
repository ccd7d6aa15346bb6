"""JSON in one spelling, and the hash of it: names sorted, no spaces, characters as they are. Pure."""

import hashlib


def encode_canonical(value: object) -> bytes:
    """Raises `ValueError` for what has no place in JSON: not-a-number, infinities, half a surrogate pair."""
    import json  # late: a flow outside of manifests is never hashed

    # The standard library, because its spelling of numbers is what deployed compilers hash.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def compute_digest(value: object) -> str:
    return f"sha256:{hashlib.sha256(encode_canonical(value)).hexdigest()}"
