"""What commands see of the daemon's environment, by names alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.tools.processes import marks

# fmt: off
SECRETS = [
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GITHUB_TOKEN", "GH_TOKEN", "GITLAB_PAT", "NPM_TOKEN",
    "npm_config__authToken", "CARGO_REGISTRY_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_SECRET", "PGPASSWORD", "MYSQL_PWD", "DB_PASS", "DATABASE_PASSWORD",
    "TWINE_PASSWORD", "VAULT_TOKEN", "SECRET_KEY_BASE", "JWT_SECRET", "SESSION_COOKIE", "SENTRY_DSN",
    "SLACK_WEBHOOK_URL", "STORAGE_CONNECTION_STRING", "DOCKER_AUTH_CONFIG", "SIGNING_PRIVATE_KEY",
    "SSH_PRIVATE_KEY_B64", "apikey", "my-password", "API_KEY_2", "DB_CREDS",
]
HARMLESS = [
    "PATH", "HOME", "LANG", "LC_ALL", "USER", "SHELL", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "VIRTUAL_ENV", "JAVA_HOME",
    "GOPATH", "HTTP_PROXY", "SSL_CERT_FILE", "KEYMAP", "XAUTHORITY", "TOKENIZERS_PARALLELISM", "MAX_TOKENS",
    "SSH_KEY_PATH", "COMPAT", "AUTHOR", "GIT_AUTHOR_NAME", "KUBECONFIG", "PASSENGER", "DATABASE_URL", "LD_LIBRARY_PATH",
    "NO_COLOR",
]
# fmt: on


@pytest.mark.parametrize("name", SECRETS)
def test_what_sounds_like_a_secret_is_left_out_unless_it_is_allowed(name: str) -> None:
    assert name not in marks.build_environment({name: "hush"})
    assert marks.build_environment({name: "hush"}, allowed=[name])[name] == "hush"


@pytest.mark.parametrize("name", HARMLESS)
def test_what_programs_need_is_passed_on_unless_it_was_named(name: str) -> None:
    assert marks.build_environment({name: "value"})[name] == "value"
    assert name not in marks.build_environment({name: "value"}, secret_variables=[name])
    assert marks.build_environment({name: "value"}, secret_variables=[name], allowed=[name])[name] == "value"


@pytest.mark.parametrize("name", ["TOWER_HOME", "TOWER_TOKEN", "TOWER_RUN", "TOWER_ANYTHING", "PUSHD_SOCKET", "PWD", "OLDPWD"])
def test_the_daemons_own_affairs_are_left_out_even_when_allowed(name: str) -> None:
    assert name not in marks.build_environment({name: "value"}, allowed=[name])


def test_nobody_is_asked_and_nothing_is_paged() -> None:
    around = {"PAGER": "less", "GIT_EDITOR": "vim", "TERM": "xterm-256color", "FORCE_COLOR": "1", "SSH_ASKPASS": "/usr/bin/ask"}
    seen = marks.build_environment(around)

    assert seen["PAGER"] == seen["GIT_PAGER"] == "cat"
    assert seen["GIT_TERMINAL_PROMPT"] == "0"
    assert seen["GIT_EDITOR"] == "true"
    assert seen["TERM"] == "dumb"
    assert not {"FORCE_COLOR", "SSH_ASKPASS"} & seen.keys()
    assert marks.build_environment(around, allowed=around)["PAGER"] == "less"


@given(st.dictionaries(st.text(min_size=1), st.text()), st.sets(st.text()))
def test_values_are_never_changed_and_the_surroundings_stay_as_they_are(around: dict[str, str], named: set[str]) -> None:
    before = dict(around)
    seen = marks.build_environment(around, secret_variables=named)

    assert around == before
    assert all(seen[name] == value for name, value in around.items() if name in seen and name not in marks.build_environment({}))
    assert not named & seen.keys() - marks.build_environment({}).keys()
