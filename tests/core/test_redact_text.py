"""What is hidden and what stays, row by row; and that each row comes out the same however it is cut."""

import pytest

from switchtower.core import redact

KNOWN = ("correct horse battery", "correct horse battery staple", 'say "friend" & enter', "tiny")
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAr6vC\nq8Jq+/x=\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

HIDDEN = [
    # tokens by their shape
    ("use ghp_16C7e42F292c6912E7710c838347Ae178B4a now", "use [redacted] now"),
    ("gho_abcdefgh12345678", "[redacted]"),
    ("(ghu_abcdefgh12345678)", "([redacted])"),
    ("ghs_abcdefgh12345678, ghr_abcdefgh12345678.", "[redacted], [redacted]."),
    ("github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuv", "[redacted]"),
    ("glpat-abcDEF123-_ghiJKL456", "[redacted]"),
    ("sk-abcdefghijklmnopqrstuvwx", "[redacted]"),
    ("sk-ant-api03-AbC_dEf-123456789", "[redacted]"),
    ("sk-proj-1a2b3c4d", "[redacted]"),
    ("sk_live_51H8abcdefgh", "[redacted]"),
    ("rk_live_51H8abcdefgh", "[redacted]"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "[redacted]"),
    ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
    ("ASIAIOSFODNN7EXAMPLE!", "[redacted]!"),
    ("xoxb-123456789012-abcdefGHIJKL", "[redacted]"),
    ("xoxp-1234567890", "[redacted]"),
    ("attach with att_01JCQ8Z5W3K7M9N2P4R6T8V0XY", "attach with [redacted]"),
    (f"jwt {JWT}.", "jwt [redacted]."),
    ("cat /srv/glpat-abcDEF123ghiJKL/x", "cat /srv/[redacted]/x"),
    # where a word begins is not always at a blank
    ("line\\nsk-abcdefgh12345678\\n", "line\\n[redacted]\\n"),
    ("\x1b[32mghp_abcdefgh12345678\x1b[0m", "\x1b[32m[redacted]\x1b[0m"),
    ("next=%3Dghp_abcdefgh12345678", "next=%3D[redacted]"),
    # private keys
    (f"a\n{PEM}\nb", "a\n[redacted]\nb"),
    (PEM.replace("\n", "\\n"), "[redacted]"),
    ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", "[redacted]"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r", "[redacted]"),
    (
        "-----BEGIN EC PRIVATE KEY----- MHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoG -----END EC PRIVATE KEY-----.",
        "[redacted].",
    ),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQdGBF\n-----END PGP PRIVATE KEY BLOCK-----", "[redacted]"),
    (f'SECRET="{PEM}"', 'SECRET="[redacted]"'),
    (f'{{"private_key": "{PEM}"}}', '{"private_key": "[redacted]"}'),
    (
        "-----BEGIN PRIVATE KEY-----\nis how such a file begins, said she",
        "[redacted]\nis how such a file begins, said she",
    ),
    # announced
    ("Bearer abc.def.ghi123", "Bearer [redacted]"),
    ("authorization: bearer 0a1b2c3d4e5f", "authorization: bearer [redacted]"),
    ('-H "Authorization: Bearer AbCdEfGhIjKl"', '-H "Authorization: Bearer [redacted]"'),
    ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]"),
    ("Proxy-Authorization: Basic dXNlcjpwYXNzd29yZA==", "Proxy-Authorization: Basic [redacted]"),
    ("docker login --password hunter2 -u me", "docker login --password [redacted] -u me"),
    ("tool --api-key 1a2b3c4d5e", "tool --api-key [redacted]"),
    # named
    ("password=hunter2", "password=[redacted]"),
    ("password: hunter2", "password: [redacted]"),
    ("password = hunter2.", "password = [redacted]"),
    ("password=swordfish", "password=[redacted]"),
    ("PGPASSWORD=swordfish psql", "PGPASSWORD=[redacted] psql"),
    ("password: 123456", "password: [redacted]"),
    ("passwd: P@ss!w0rd#1", "passwd: [redacted]"),
    ("passwd: $Ecret99", "passwd: [redacted]"),
    ("passphrase: correct-donkey-battery-staple", "passphrase: [redacted]"),
    ('password = "let me in"', 'password = "[redacted]"'),
    ("password: str = 'hunter2'", "password: str = '[redacted]'"),
    ('let password: &str = "hunter2";', 'let password: &str = "[redacted]";'),
    ('{"client_secret": "abcdef"}', '{"client_secret": "[redacted]"}'),
    ('{\\"client_secret\\": \\"abcdef\\"}', '{\\"client_secret\\": \\"[redacted]\\"}'),
    ('secret: "a\\"b c"', 'secret: "[redacted]"'),
    ("API_KEY=1a2b3c4d", "API_KEY=[redacted]"),
    ("x-api-key: 1a2b3c4d", "x-api-key: [redacted]"),
    ("db-password: s3cr3t", "db-password: [redacted]"),
    ("DB_PASS=s3cr3t", "DB_PASS=[redacted]"),
    ("config['apiKey'] = 'k3y-1234'", "config['apiKey'] = '[redacted]'"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AWS_SECRET_ACCESS_KEY=[redacted]"),
    ("SECRET_KEY_BASE=0123456789abcdef", "SECRET_KEY_BASE=[redacted]"),
    ("token := abc123def", "token := [redacted]"),
    (":token => 'abc123def'", ":token => '[redacted]'"),
    ("?token=abc123def&page=2", "?token=[redacted]&page=2"),
    ("AccountKey=abc123def456==;Suffix=core", "AccountKey=[redacted];Suffix=core"),
    ("f(user=u, password=hunter2)", "f(user=u, password=[redacted])"),
    ("token=550e8400-e29b-41d4-a716-446655440000", "token=[redacted]"),
    ("API key: abcd1234efgh", "API key: [redacted]"),
    ("**Password:** `hunter2`", "**Password:** `[redacted]`"),
    ("token=abcdefghijklmnopqrstuvwxyz", "token=[redacted]"),
    ("token: " + "a1" * 500 + " end", "token: [redacted] end"),
    # in URLs
    ("https://user:pass@example.com/x", "https://user:[redacted]@example.com/x"),
    ("postgres://app:p@ss#1@db:5432/app", "postgres://app:[redacted]@db:5432/app"),
    ("redis://:pw@cache", "redis://:[redacted]@cache"),
    ("https://ghp_abcdefgh12345678:x-oauth-basic@github.com/a/b", "https://[redacted]:[redacted]@github.com/a/b"),
    ("https://user:" + "p" * 400 + "@host/x", "https://user:[redacted]/x"),
    # the daemon's own
    ("the correct horse battery it is", "the [redacted] it is"),
    ("correct horse battery staple", "[redacted]"),
    ("xcorrect horse battery stapler", "x[redacted]r"),
    ('{"a": "say \\"friend\\" & enter"}', '{"a": "[redacted]"}'),
    ("?q=say%20%22friend%22%20%26%20enter", "?q=[redacted]"),
    ("?q=correct%20horse%20battery%20staple", "?q=[redacted]"),
]

STAYS = [
    "",
    "Hello world, this is ordinary prose.",
    "the key: it works",
    "token count = 5",
    "a tiny known value is no reason",
    # identities
    "550e8400-e29b-41d4-a716-446655440000",
    "key: 550e8400-e29b-41d4-a716-446655440000",
    "idempotencyKey: 550e8400-e29b-41d4-a716-446655440000",
    "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "attach_token_sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "sess_01JCQ8Z5W3K7M9N2P4R6T8V0XY run_01JCQ8Z5W3K7M9N2P4R6T8V0XY",
    "key: sess_01JCQ8Z5W3K7M9N2P4R6T8V0XY",
    # paths and addresses
    "/home/user/projects/very/long/path/to/some/file_with_token_in_its_name.py",
    "key: ~/.ssh/id_rsa2",
    "token_file=/run/secrets/token1",
    "secret: /etc/app1/config2",
    "ssl_key=certs/server1.pem",
    "http://localhost:8787/@scope/pkg",
    "ws://127.0.0.1:3141",
    "ssh://git@github.com:22/a/b.git and git@github.com:a/b.git",
    "secret://vault/path1",
    "https://{user}:{password}@{host}/",
    # words that only begin like a token
    "task-1234567890abcdef, disk-0123456789abcdef",
    "sk-learn and sk-SK, ask-me",
    "sk_lived_in, ghp_short, xoxo-hugs-and-kisses",
    "AKIA is short, ASIAPACIFIC is a region, AIzawa is a name",
    "att_dropout_probability_of_layers",
    "eyJ and eyJhbGciOiJIUzI1NiJ9 alone",
    # code
    "password: string; token: Token; secret?: string",
    "def login(user: str, password: str) -> Token:",
    "login(user=user, password=password)",
    "password = getpass.getpass()",
    "token = request.headers['X-Token']",
    'secret = os.environ["APP_SECRET1"]',
    "key = sha256(data)",
    "token = tokens_v2[0]",
    "first_pass: Callable[[int, str], None]",
    'key = "Europe/London"',
    'secret_from: "$.inputs.x1"',
    "secret: arn:aws:secretsmanager:eu-west-1:123456789012:x",
    "sorted(items, key=lambda item: item.size)",
    "for key, value in pairs: print(key, value)",
    "Token::new(key)",
    "if password != confirmation:",
    "max_tokens: 200000, token_count=128000, token = 4096",
    "public_key = 1a2b3c4d5e6f, primary_key=True1234",
    "keyboard: qwerty123, monkey=banana123, tokenizer: bpe50000",
    "password=$DB_PASSWORD token=${TOKEN1} secret: ${{ secrets.NPM1 }}",
    "password={password} token=<your-token-1> secret=%(secret1)s",
    "password=******** ",
    'password: "Password must have 8 characters"',
    # prose
    "Bearer authentication, bearer tokens, the bearer of bad news",
    "Basic authentication with Basic dXNlcjpwYXNz",
    "the --password option, or --token for short",
    # public parts of keys, and talk of private ones
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIE\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0B\n-----END PUBLIC KEY-----",
    'if "-----BEGIN PRIVATE KEY-----" in text:',
    "a table\n| --- | ----- |\n---------- BEGIN -----",
    "[redacted] password=[redacted] Bearer [redacted]",
]

ROWS = [*HIDDEN, *((text, text) for text in STAYS)]


@pytest.fixture(scope="module")
def redactor() -> redact.Redactor:
    return redact.Redactor(KNOWN)


@pytest.mark.parametrize(("text", "expected"), HIDDEN)
def test_a_secret_is_hidden_and_what_stands_around_it_stays(redactor: redact.Redactor, text: str, expected: str) -> None:
    assert redactor.redact_text(text) == expected


@pytest.mark.parametrize("text", STAYS)
def test_what_is_no_secret_comes_back_as_the_same_object(redactor: redact.Redactor, text: str) -> None:
    assert redactor.redact_text(text) is text


@pytest.mark.parametrize(("text", "expected"), ROWS)
def test_redacting_twice_changes_nothing_more(redactor: redact.Redactor, text: str, expected: str) -> None:
    assert redactor.redact_text(redactor.redact_text(text)) == expected


@pytest.mark.parametrize(("text", "expected"), ROWS)
def test_every_cut_in_two_and_the_cut_into_characters_come_out_the_same(
    redactor: redact.Redactor, text: str, expected: str
) -> None:
    stream = redactor.open_stream()
    for cut in range(0, len(text), 1 + len(text) // 150):
        assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.close() == expected
    assert "".join(map(stream.feed, text)) + stream.close() == expected


def test_a_value_learnt_later_is_hidden_from_then_on_also_in_an_open_stream() -> None:
    redactor = redact.Redactor()
    stream = redactor.open_stream()
    assert stream.feed("open sesame ") == "open sesame "
    redactor.add_secret("open sesame")
    assert redactor.redact_text("open sesame") == "[redacted]"
    assert stream.feed("open ses") + stream.feed("ame now") + stream.close() == "[redacted] now"


def test_known_values_that_are_short_or_part_of_the_mark_are_ignored() -> None:
    redactor = redact.Redactor(["1234567", "redacted", "[redacted]"])
    assert redactor.redact_text("1234567 redacted [redacted]") == "1234567 redacted [redacted]"


def test_a_private_key_without_an_end_is_swallowed_only_so_far(redactor: redact.Redactor) -> None:
    body = "MIIEowIBAAKCAQEA\n" * 1200
    assert redactor.redact_text(f"-----BEGIN PRIVATE KEY-----\n{body}") == "[redacted]" + body[body.index("\n", 16_383) :]
