"""Whose cookie it is and whose page asks, by themselves: for any text that a header can hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as texts
from tests.web_server.site import parse_cookie_attributes

from switchtower.transports import upgrade
from switchtower.transports.stream import ConnectionOrigin
from switchtower.web_api import browser_login
from switchtower.web_api.browser_login import MAX_VISITS, VISIT_SECONDS, VisitTokens, apply_cookie_token

HOST = "127.0.0.1:8787"


def test_what_is_set_is_what_is_read() -> None:
    made = browser_login.make_cookie(HOST, "a.b-c_d", seconds=60, secure=True)
    assert parse_cookie_attributes(made) == {"path": "/", "max-age": "60", "httponly": True, "samesite": "Strict", "secure": True}
    assert browser_login.read_cookie(made.split(";")[0], HOST) == "a.b-c_d"
    assert browser_login.read_cookie(browser_login.make_expired_cookie(HOST, secure=False).split(";")[0], HOST) is None


@pytest.mark.parametrize(
    ("host", "name"),
    [("127.0.0.1:8787", "tower_8787"), ("hub.example", "tower"), ("[::1]:80", "tower_80"), ("[::1]", "tower"), ("", "tower")],
)
def test_each_port_has_its_own(host: str, name: str) -> None:
    assert browser_login.make_cookie_name(host) == name


@given(texts.text())
def test_any_header_is_read_without_trouble_and_two_of_ours_are_none(rude: str) -> None:
    browser_login.read_cookie(rude, HOST)
    assert browser_login.read_cookie(f"tower_8787=a; {rude}; tower_8787=b", HOST) is None


@given(texts.text(), texts.text())
def test_no_origin_but_our_own_is_ours(origin: str, fetch_site: str) -> None:
    ours = origin.lower() == f"http://{HOST}"
    assert browser_login.is_own_page(origin, fetch_site, HOST, None) == ours
    assert browser_login.is_own_page(None, fetch_site, HOST, None) == (fetch_site == "same-origin")


@pytest.mark.parametrize(
    ("origin", "host", "public_url", "ours"),
    [
        ("http://127.0.0.1:8787", HOST, None, True),
        ("HTTP://LocalHost:1", "localhost:1", None, True),
        ("http://127.0.0.1:8788", HOST, None, False),
        ("http://127.0.0.1", HOST, None, False),
        ("http://localhost:8787", HOST, None, False),
        ("https://tower.example", HOST, "https://tower.example", True),
        ("https://tower.example:444", HOST, "https://tower.example", False),
        ("http://tower.example", HOST, "https://tower.example", False),
        ("https://127.0.0.1:8787", HOST, None, False),
        ("https://tower.example", "tower.example", None, True),
        ("ws://127.0.0.1:8787", HOST, None, False),
        ("http://127.0.0.1:8787/", HOST, None, False),
        ("http://127.0.0.1:8787, http://evil.example", HOST, None, False),
        ("null", "null", None, False),
        ("", "", None, False),
    ],
)
def test_our_own_page_is_that_of_this_very_port(origin: str, host: str, public_url: str | None, ours: bool) -> None:
    assert browser_login.is_own_page(origin, None, host, public_url) is ours


def test_a_socket_s_own_token_goes_before_the_cookie() -> None:
    headers = {"host": HOST, "origin": f"http://{HOST}", "cookie": "tower_8787=from-the-cookie"}
    for token, found in (("its-own", "its-own"), (None, "from-the-cookie")):
        request = upgrade.UpgradeRequest(
            path="/ws/app", query={}, headers=headers, origin=ConnectionOrigin(transport="websocket", token=token)
        )
        assert apply_cookie_token(request, None).origin.token == found


def test_a_visit_is_good_once_and_for_a_while() -> None:
    now = [1_000.0]
    visits = VisitTokens(lambda: now[0])
    token, expires_at_ms = visits.issue()
    late, _ = visits.issue()
    assert expires_at_ms == (1_000 + VISIT_SECONDS) * 1_000
    assert not visits.redeem(token + "x")
    assert not visits.redeem("\ud800")
    assert visits.redeem(token)
    assert not visits.redeem(token)
    now[0] += VISIT_SECONDS
    assert not visits.redeem(late)


def test_visits_are_bounded_and_the_oldest_go_first() -> None:
    visits = VisitTokens()
    tokens = [visits.issue()[0] for _ in range(MAX_VISITS + 3)]
    assert [visits.redeem(token) for token in tokens] == [False] * 3 + [True] * MAX_VISITS
    assert all(token not in repr(vars(visits)) for token in tokens)
