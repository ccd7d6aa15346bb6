"""The page's files: what is served, with which headers, and that nothing else ever is."""

from pathlib import Path

import pytest
from tests.daemon.conftest import StartDaemon
from tests.web_server.site import INDEX, SCRIPT, HttpPortClient

CSP = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "font-src": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "object-src": "'none'",
    "form-action": "'self'",
}


@pytest.mark.requirement("relay:http:static-page")
@pytest.mark.parametrize("path", ["/", "/some/where", "/index.html", "/?x=1", "/%2e%2e%2fetc%2fpasswd", "//evil", "/a%00b"])
async def test_the_page_answers_at_its_own_paths(http_port: HttpPortClient, path: str) -> None:
    answer = await http_port.get(path)
    assert (answer.status, answer.body, answer["content-type"]) == (200, INDEX, "text/html; charset=utf-8")
    assert answer["cache-control"] == "no-cache"


async def test_the_headers_keep_a_page_to_itself(http_port: HttpPortClient) -> None:
    for path in ("/", "/assets/app-1a2b3c.js", "/sw.js"):
        answer = await http_port.get(path)
        policy = dict(part.strip().split(" ", 1) for part in answer["content-security-policy"].split(";"))
        assert policy == CSP
        assert answer["x-content-type-options"] == "nosniff"
        assert answer["referrer-policy"] == "no-referrer"
        assert answer["cross-origin-opener-policy"] == "same-origin"
        assert answer["cross-origin-resource-policy"] == "same-origin"
        assert answer["x-frame-options"] == "DENY"
        assert "camera=()" in answer["permissions-policy"]
        assert answer["access-control-allow-origin"] == ""


@pytest.mark.parametrize(
    ("path", "type_", "cache"),
    [
        ("/assets/app-1a2b3c.js", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"),
        ("/assets/app-1a2b3c.css", "text/css; charset=utf-8", "public, max-age=31536000, immutable"),
        ("/sw.js", "text/javascript; charset=utf-8", "no-cache"),
        ("/manifest.webmanifest", "application/manifest+json", "no-cache"),
        ("/icon.svg", "image/svg+xml", "no-cache"),
    ],
)
async def test_files_have_their_types_and_are_kept_as_long_as_their_names_say(
    http_port: HttpPortClient, path: str, type_: str, cache: str
) -> None:
    answer = await http_port.get(path)
    assert (answer.status, answer["content-type"], answer["cache-control"]) == (200, type_, cache)


async def test_what_the_browser_has_is_not_sent_again(http_port: HttpPortClient) -> None:
    first = await http_port.get("/assets/app-1a2b3c.js")
    again = await http_port.get("/assets/app-1a2b3c.js", If_None_Match=f'"other", W/{first["etag"]}')
    assert (again.status, again.body, again["etag"]) == (304, b"", first["etag"])
    assert (await http_port.get("/assets/app-1a2b3c.js", If_None_Match='"other"')).status == 200


@pytest.mark.parametrize(
    ("accepted", "coding", "body"),
    [
        ("gzip, deflate, br", "br", b"as brotli"),
        ("gzip", "gzip", b"as gzip"),
        ("br;q=0, gzip;q=0.5", "gzip", b"as gzip"),
        ("zstd", "", SCRIPT),
        ("br;q=0", "", SCRIPT),
    ],
)
async def test_the_smaller_twin_is_sent_to_who_takes_it(
    http_port: HttpPortClient, accepted: str, coding: str, body: bytes
) -> None:
    answer = await http_port.get("/assets/app-1a2b3c.js", Accept_Encoding=accepted)
    assert (answer["content-encoding"], answer.body) == (coding, body)
    assert answer["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "path",
    [
        "/../data/owner.token",
        "/assets/../../data/owner.token",
        "/%2e%2e/data/owner.token",
        "/assets/..%2f..%2fdata/owner.token",
        "/assets/%2e%2e/%2e%2e/run/endpoints.json",
        "/assets/..\\..\\data\\owner.token",
        "//etc/host.conf",
        "/.git/config",
        "/.secret",
        "/assets/link.js",
        "/assets/app-1a2b3c.js.br",
        "/assets/APP-1a2b3c.js",
        "/no/such.js",
        "/assets/",
        "/assets/none.js",
    ],
)
async def test_no_path_leads_out_of_the_page_s_folder(http_port: HttpPortClient, built_page: Path, path: str) -> None:
    (built_page / ".secret").write_text("hidden")
    (built_page / "assets" / "link.js").symlink_to(http_port.home / "data" / "owner.token")
    (built_page / "index.html").write_bytes(INDEX + b" ")  # so that the folder is looked at anew
    answer = await http_port.get(path)
    assert answer.status == (200 if path == "/assets/" else 404)
    assert http_port.token.encode() not in answer.body
    assert b"hidden" not in answer.body


@pytest.mark.parametrize("path", ["/api", "/api/x", "/auth/none", "/metrics/x", "/ws/none"])
async def test_below_the_endpoints_there_is_no_page(http_port: HttpPortClient, path: str) -> None:
    answer = await http_port.get(path)
    assert (answer.status, answer["content-type"]) == (404, "application/json")


async def test_nothing_is_posted_to_the_page(http_port: HttpPortClient) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert (await http_port.ask(method, "/", b"x")).status == 404


async def test_a_page_that_is_built_anew_is_served_at_once(http_port: HttpPortClient, built_page: Path) -> None:
    assert (await http_port.get("/")).body == INDEX
    (built_page / "assets" / "app-new.js").write_bytes(b"new")
    (built_page / "index.html").write_bytes(b"<!doctype html>new")
    assert (await http_port.get("/")).body == b"<!doctype html>new"
    assert (await http_port.get("/assets/app-new.js")).body == b"new"


async def test_without_the_built_page_somebody_is_told_how_to_get_it(start_daemon_process: StartDaemon, home: Path) -> None:
    site = HttpPortClient(home, await start_daemon_process(http="127.0.0.1:0", web_dir=home / "nothing"))
    for path in ("/", "/some/where"):
        answer = await site.get(path)
        assert (answer.status, answer["content-type"]) == (404, "text/html; charset=utf-8")
        assert "make web" in answer.text
        assert "default-src 'self'" in answer["content-security-policy"]
    assert (await site.get("/healthz")).status == 200


async def test_a_stranger_s_name_is_not_served(http_port: HttpPortClient) -> None:
    answer = await http_port.get("/", Host="evil.example")
    assert (answer.status, INDEX in answer.body) == (403, False)
