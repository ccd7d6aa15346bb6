"""A database's address is shown without its password, however it is spelled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.stores.postgres import database


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://tower@db.example/tower", "postgresql://tower@db.example/tower"),
        ("postgresql://tower:secret@db.example:5433/tower", "postgresql://tower@db.example:5433/tower"),
        ("postgres://:secret@/tower?host=/run/pg", "postgres://@/tower?host=/run/pg"),
        ("postgresql://a:secret@one:1,two:2/x?sslmode=verify-full", "postgresql://a@one:1,two:2/x?sslmode=verify-full"),
        ("postgresql://[::1]:5432/x", "postgresql://[::1]:5432/x"),
        ("postgresql:///x?password=secret&user=ann&passfile=/secret", "postgresql:///x?user=ann"),
        ("postgresql://ann:se/secret@host/x", "postgresql://…"),
        ("postgresql://ann:se?secret@host/x", "postgresql://…"),
        ("postgresql://ann:se#secret@host/x", "postgresql://…"),
        ("postgresql://ann:se@secret@host/x", "postgresql://…"),
        ("postgresql://ann:secret", "postgresql://…"),
        ("mysql://ann:secret@host/x", "postgresql://…"),
        ("postgresql://[bad", "postgresql://…"),
    ],
)
def test_an_address_has_no_password(dsn: str, shown: str) -> None:
    assert database.mask_password(dsn) == shown


@given(password=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).map(lambda text: f"S3{text}S3"))
def test_no_password_is_ever_shown(password: str) -> None:
    assert password not in database.mask_password(f"postgresql://ann:{password}@host/x?host=/run")
    assert "S3" not in database.mask_password(f"postgresql://ann:{password}@host/x")
