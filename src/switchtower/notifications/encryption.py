"""Encrypts a message for one browser, and proves its sender: RFC 8291 and RFC 8292 with the `cryptography` library. Pure but for
that import; the randomness is passed in."""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any
from urllib.parse import urlsplit

RECORD = 4_096
MAX_PLAINTEXT_BYTES = RECORD - 16 - 1 - 86
"""Bytes of a message that fit into one record, with its header."""
_TOKEN_SECONDS = 12 * 3_600


def encode_base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Raises ValueError."""
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


def generate_private_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def encode_pem(key: Any) -> str:
    from cryptography.hazmat.primitives import serialization as forms

    pem: bytes = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return pem.decode()


def decode_pem(pem: str) -> Any:
    from cryptography.hazmat.primitives import serialization as forms

    return forms.load_pem_private_key(pem.encode(), None)


def encode_public_key(key: Any) -> bytes:
    """Returns the public half of a private key, as an uncompressed point."""
    from cryptography.hazmat.primitives import serialization as forms

    point: bytes = key.public_key().public_bytes(forms.Encoding.X962, forms.PublicFormat.UncompressedPoint)
    return point


def check_keys(p256dh: str, auth: str) -> None:
    """Raises ValueError for keys that no browser can have made."""
    _decode_point(decode_base64url(p256dh))
    if len(decode_base64url(auth)) != 16:
        raise ValueError("`auth` is not of 16 bytes")


def _decode_point(data: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), data)


def encrypt_message(message: bytes, p256dh: bytes, auth: bytes, *, key: Any, salt: bytes) -> bytes:
    """Returns the body of a push message in `aes128gcm`. `key` is a fresh private key for this message alone, `salt` 16 random
    bytes."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    assert len(message) <= MAX_PLAINTEXT_BYTES, "one record holds it"
    ours = encode_public_key(key)
    shared = key.exchange(ec.ECDH(), _decode_point(p256dh))
    # RFC 8291, section 3.4: the content key is derived from the two public keys and the browser's secret.
    material = _expand_key(_compute_hmac(auth, shared), b"WebPush: info\0" + p256dh + ours, 32)
    secret = _compute_hmac(salt, material)
    content_key = _expand_key(secret, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _expand_key(secret, b"Content-Encoding: nonce\0", 12)
    head = salt + RECORD.to_bytes(4, "big") + bytes([len(ours)]) + ours
    return head + AESGCM(content_key).encrypt(nonce, message + b"\x02", None)


def make_authorization(endpoint: str, key: Any, *, contact: str, now: float) -> str:
    """RFC 8292: the sender, the audience and the expiry, signed."""
    import jwt

    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now) + _TOKEN_SECONDS, "sub": contact}
    return f"vapid t={jwt.encode(claims, key, algorithm='ES256')}, k={encode_base64url(encode_public_key(key))}"


def _compute_hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha256)


def _expand_key(key: bytes, info: bytes, length: int) -> bytes:
    return _compute_hmac(key, info + b"\x01")[:length]
