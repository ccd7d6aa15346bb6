"""The rooms behind the set-up: what is found, what is asked, the try, and the file."""

import stat
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower import config
from switchtower.cli.configuration import setup_questions
from switchtower.cli.configuration.setup_questions import (
    InvalidSetupAnswer,
    LocalModelServer,
    ProviderCandidate,
    ProviderCandidates,
    SetupAnswers,
    SetupOption,
)
from switchtower.settings.sources import ConfigError
from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer, run_in_thread

KEY = "sk-very-secret-0123456789"


def make_settings(home: Path, content: str = "") -> config.Settings:
    if content:
        (home / "config.toml").write_text(content)
    return config.load(environ={"TOWER_HOME": str(home)})


def serve_models(*names: Any) -> Any:
    """A server that lists these models."""
    body = b'{"object":"list","data":[%s]}' % b",".join(b'{"id":"%s"}' % name.encode() for name in names)

    def answer(received: script.ReceivedRequest) -> script.ScriptedAnswer:
        return script.ScriptedRefusal(200, body=body) if received.path.endswith("/models") else script.reply_text("OK")

    return answer


# Found


async def test_keys_of_the_environment_are_found_and_the_rest_says_what_it_lacks(tmp_path: Path) -> None:
    seen = await setup_questions.find_candidates(make_settings(tmp_path), {"OPENAI_API_KEY": KEY}, servers=())

    assert [candidate.name for candidate in seen.candidates] == ["openai", "demo"]
    openai = seen.get("openai")
    assert openai is not None
    assert openai.why == "its key is in `OPENAI_API_KEY` of your shell"
    assert openai.model == openai.chosen_by_itself
    assert openai.model
    assert "`ANTHROPIC_API_KEY` is not set; hint: " in dict(seen.missing)["anthropic"]
    assert KEY not in repr(seen)


async def test_with_nothing_there_is_the_demo(tmp_path: Path) -> None:
    seen = await setup_questions.find_candidates(make_settings(tmp_path), {}, servers=())

    assert [candidate.name for candidate in seen.candidates] == ["demo"]


async def test_a_server_that_answers_is_found_with_its_models_and_what_the_file_has_to_say(tmp_path: Path) -> None:
    with run_in_thread(serve_models("qwen3", "llama4")) as server:
        seen = await setup_questions.find_candidates(
            make_settings(tmp_path), {}, servers=[LocalModelServer("ollama", server.url)]
        )

        assert seen.get("ollama") == ProviderCandidate(
            name="ollama",
            why=f"answers at 127.0.0.1:{server.port}",
            model="qwen3",
            models=("qwen3", "llama4"),
            table={"provider": "ollama", "base_url": server.url},
        )


async def test_a_server_that_is_named_already_is_asked_for_its_models(tmp_path: Path) -> None:
    with run_in_thread(serve_models("qwen3")) as server:
        seen = await setup_questions.find_candidates(
            make_settings(tmp_path), {"OLLAMA_HOST": server.origin}, servers=[LocalModelServer("ollama", server.url)]
        )

        ollama = seen.get("ollama")
        assert ollama is not None
        assert (ollama.why, ollama.model, ollama.table) == ("OLLAMA_HOST is set, and it answers", "qwen3", None)
        assert ollama.chosen_by_itself is None
        assert [candidate.name for candidate in seen.candidates] == ["ollama", "demo"]


async def test_what_the_file_configures_comes_first_when_it_would_serve(tmp_path: Path) -> None:
    content = '[models.work]\nprovider = "openai"\nbase_url = "https://work.example/v1"\nmodel = "m"\nkey_env = "WORK_KEY"\n'
    seen = await setup_questions.find_candidates(
        make_settings(tmp_path, content), {"WORK_KEY": KEY, "OPENAI_API_KEY": KEY}, servers=()
    )

    assert [candidate.name for candidate in seen.candidates] == ["work", "openai", "demo"]
    assert seen.candidates[0].why == "in the configuration file, as a `openai`"


async def test_what_would_serve_by_itself_comes_before_what_needs_a_model(tmp_path: Path) -> None:
    content = '[models.local]\nprovider = "vllm"\nbase_url = "http://127.0.0.1:9/v1"\n'
    seen = await setup_questions.find_candidates(make_settings(tmp_path, content), {"OPENAI_API_KEY": KEY}, servers=())

    assert [candidate.name for candidate in seen.candidates] == ["openai", "local", "demo"]


@pytest.mark.parametrize(
    "answer",
    [
        script.ScriptedRefusal(200, body=b"<html>hello</html>"),
        script.ScriptedRefusal(200, body=b'{"data": 7}'),
        script.ScriptedRefusal(200, body=b"[1]"),
        script.ScriptedRefusal(200, body=b'{"data": [7, {"id": 8}, {"id": "ok"}, {"id": "\\u001b[31m"}, {"id": ""}]}'),
        script.ScriptedRefusal(200, body=b'{"data": [' + b"[" * 5_000),
        script.ScriptedRefusal(200, body=b'{"data": [{"id": "x"}' + b" " * 2_000_000),
        script.ScriptedRefusal(500, "no"),
        script.ScriptedRefusal(401, "who are you"),
    ],
)
def test_whatever_answers_there_harms_nobody(answer: script.ScriptedAnswer) -> None:
    with run_in_thread(lambda _: answer) as server:
        assert setup_questions.list_server_models(server.url) in (None, (), ("ok",))


def test_a_list_without_an_end_is_cut() -> None:
    with run_in_thread(serve_models(*map(str, range(1_000)))) as server:
        assert len(setup_questions.list_server_models(server.url) or ()) == setup_questions.MAX_MODELS


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://127.0.0.1:bad/v1", "nonsense", "http://[::1/v1", ""])
def test_where_nothing_is_nothing_is_found(url: str) -> None:
    assert setup_questions.list_server_models(url) is None


# Asked


FOUND = ProviderCandidates(
    (
        ProviderCandidate(name="work", why="here", model="m1", chosen_by_itself="m1", models=("m1", "m2")),
        ProviderCandidate(name="odd", why="there"),
        ProviderCandidate(name="demo", why="built in"),
    )
)


def test_the_questions_come_one_after_the_other() -> None:
    first = setup_questions.get_next_question(FOUND, SetupAnswers(), policy="ask")
    assert first is not None
    assert (first.name, first.usual) == ("provider", "work")
    assert first.options == (SetupOption("work", "here"), SetupOption("odd", "there"), SetupOption("demo", "built in"))

    second = setup_questions.get_next_question(FOUND, SetupAnswers("work"), policy="ask")
    assert second is not None
    assert (second.name, second.usual, second.free) == ("model", "m1", True)
    assert [option.value for option in second.options] == ["m1", "m2"]

    third = setup_questions.get_next_question(FOUND, SetupAnswers("work", "m2"), policy="auto")
    assert third is not None
    assert (third.name, third.usual) == ("policy", "auto")
    assert [option.value for option in third.options] == list(config.POLICIES)
    assert all(option.note for option in third.options)

    assert setup_questions.get_next_question(FOUND, SetupAnswers("work", "m2", "ask"), policy="ask") is None


def test_the_demo_has_no_models_to_choose_from() -> None:
    question = setup_questions.get_next_question(FOUND, SetupAnswers("demo"), policy="ask")

    assert question is not None
    assert question.name == "policy"


@pytest.mark.parametrize(
    ("said", "meant"), [("", "work"), (None, "work"), ("2", "odd"), (" demo ", "demo"), ("work", "work"), ("3", "demo")]
)
def test_an_answer_is_a_name_a_number_or_nothing(said: str | None, meant: str) -> None:
    question = setup_questions.get_next_question(FOUND, SetupAnswers(), policy="ask")
    assert question is not None

    assert setup_questions.apply_answer(SetupAnswers(), question, said) == SetupAnswers(provider=meant)


@pytest.mark.parametrize("said", ["0", "4", "-1", "none", "99999", "²", "wor"])
def test_what_is_no_answer_says_why(said: str) -> None:
    question = setup_questions.get_next_question(FOUND, SetupAnswers(), policy="ask")
    assert question is not None

    with pytest.raises(InvalidSetupAnswer, match="none of work, odd, demo"):
        setup_questions.apply_answer(SetupAnswers(), question, said)


def test_a_model_may_be_one_that_is_not_listed_and_has_to_be_named_where_none_is_usual() -> None:
    question = setup_questions.get_next_question(FOUND, SetupAnswers("odd"), policy="ask")
    assert question is not None
    assert (question.usual, question.options) == (None, ())

    assert setup_questions.apply_answer(SetupAnswers("odd"), question, "maker/model:7b") == SetupAnswers("odd", "maker/model:7b")
    for said in ("", "a\x1bb", "x" * 201):
        with pytest.raises(InvalidSetupAnswer):
            setup_questions.apply_answer(SetupAnswers("odd"), question, said)


def test_the_usual_answers_are_those_that_would_be_offered() -> None:
    assert setup_questions.apply_defaults(FOUND, SetupAnswers(), policy="auto") == SetupAnswers("work", "m1", "auto")
    assert setup_questions.apply_defaults(FOUND, SetupAnswers("demo", policy="ask"), policy="auto") == SetupAnswers(
        "demo", None, "ask"
    )
    with pytest.raises(InvalidSetupAnswer, match="`odd` has no model"):
        setup_questions.apply_defaults(FOUND, SetupAnswers("odd"), policy="ask")


@given(st.lists(st.text(max_size=8), max_size=12))
def test_whatever_is_said_the_questions_end_or_say_why_not(words: list[str]) -> None:
    answers = SetupAnswers()
    for word in words:
        question = setup_questions.get_next_question(FOUND, answers, policy="ask")
        if question is None:
            break
        with suppress(InvalidSetupAnswer):
            answers = setup_questions.apply_answer(answers, question, word)
    assert answers.policy is None or answers.policy in config.POLICIES


# The try


def make_table(server: ModelServer) -> dict[str, dict[str, str]]:
    return {"work": {"provider": "openai", "base_url": server.url, "model": "scripted", "key_env": "WORK_KEY"}}


async def test_a_good_key_is_shown_by_one_small_call(tmp_path: Path) -> None:
    async with ModelServer([script.reply_text("OK")]) as server:
        tried = await setup_questions.try_model(make_settings(tmp_path), make_table(server), "work", None, {"WORK_KEY": KEY})

        assert (tried.problem, tried.said, tried.was_made) == (None, "OK", True)
        [request] = server.requests
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert len(request.body["messages"]) == 1
        assert "tools" not in request.body


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            script.ScriptedRefusal(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key"),
            "API key refused; hint: check `WORK_KEY`",
        ),
        (script.ScriptedRefusal(404, "no such model", code="model_not_found"), "unknown model"),
        (script.ScriptedRefusal(429, "you have no money", code="insufficient_quota"), "no quota left"),
        (script.ScriptedRefusal(500, "oh dear"), "server error (HTTP 500)"),
        (script.ScriptedReply((script.CutStep(),)), "connection lost"),
    ],
)
async def test_a_bad_try_says_what_to_do_and_never_the_key(tmp_path: Path, answer: script.ScriptedAnswer, said: str) -> None:
    async with ModelServer([answer]) as server:
        tried = await setup_questions.try_model(make_settings(tmp_path), make_table(server), "work", None, {"WORK_KEY": KEY})

        assert tried.problem is not None
        assert said in tried.problem
        assert KEY not in repr(tried)
        assert len(server.requests) == 1, "a try is one call"


async def test_a_key_that_is_missing_is_said_without_a_call(tmp_path: Path) -> None:
    async with ModelServer([]) as server:
        tried = await setup_questions.try_model(make_settings(tmp_path), make_table(server), "work", None, {})

        assert tried.problem is not None
        assert "`WORK_KEY` is not set" in tried.problem
        assert server.connections == 0


async def test_a_server_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    async with ModelServer([script.ScriptedReply((script.HoldStep(),))]) as server:
        tried = await setup_questions.try_model(
            make_settings(tmp_path), make_table(server), "work", None, {"WORK_KEY": KEY}, timeout=0.5
        )

        assert tried.problem is not None
        assert "hint: " in tried.problem or "in time" in tried.problem


async def test_the_demo_needs_no_try(tmp_path: Path) -> None:
    tried = await setup_questions.try_model(make_settings(tmp_path), {}, "demo", None, {})

    assert (tried.is_good, tried.was_made) == (True, False)


# The file


def test_what_is_in_the_file_stays_and_the_choices_are_set(tmp_path: Path) -> None:
    content = '# mine\nlog_level = "debug"  # loud\npolicy = "auto"\nmodel = "old"\n\n[models.work]\nprovider = "openai"\n'
    loaded = make_settings(tmp_path, content)

    file = setup_questions.write_answers(
        loaded, SetupAnswers("openai", "gpt", "ask"), ProviderCandidate(name="openai", why="", chosen_by_itself="gpt")
    )

    assert file.read_text() == (
        '# mine\nlog_level = "debug"  # loud\npolicy = "ask"\nprovider = "openai"\n\n[models.work]\nprovider = "openai"\n'
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_model_that_the_provider_would_not_choose_is_named(tmp_path: Path) -> None:
    setup_questions.write_answers(
        make_settings(tmp_path),
        SetupAnswers("openai", "other", "ask"),
        ProviderCandidate(name="openai", why="", chosen_by_itself="gpt"),
    )

    assert make_settings(tmp_path).model == "other"


def test_a_server_that_was_found_gets_its_table(tmp_path: Path) -> None:
    candidate = ProviderCandidate(
        name="ollama", why="", model="q", models=("q",), table={"provider": "ollama", "base_url": "http://127.0.0.1:1/v1"}
    )
    loaded = make_settings(tmp_path, 'log_level = "debug"\n[[rules]]\neffect = "allow"\ncommand = "make"\n')

    setup_questions.write_answers(loaded, SetupAnswers("ollama", "q3:8b", "auto"), candidate)

    written = tomllib.loads((tmp_path / "config.toml").read_text())
    assert written == {
        "log_level": "debug",
        "provider": "ollama",
        "policy": "auto",
        "rules": [{"effect": "allow", "command": "make"}],
        "models": {"ollama": {"provider": "ollama", "base_url": "http://127.0.0.1:1/v1", "model": "q3:8b"}},
    }
    again = make_settings(tmp_path)
    setup_questions.write_answers(
        again, SetupAnswers("ollama", "other", "auto"), ProviderCandidate(name="ollama", why="", chosen_by_itself="q3:8b")
    )
    assert (make_settings(tmp_path).model, tomllib.loads((tmp_path / "config.toml").read_text())["models"]) == (
        "other",
        written["models"],
    )


def test_a_file_that_cannot_be_started_with_stays_as_it_is(tmp_path: Path) -> None:
    loaded = make_settings(tmp_path)
    (tmp_path / "config.toml").write_text("nonsense = 1\n")

    with pytest.raises(ConfigError):
        setup_questions.write_answers(loaded, SetupAnswers("demo", None, "ask"), ProviderCandidate(name="demo", why=""))

    assert (tmp_path / "config.toml").read_text() == "nonsense = 1\n"


def test_a_first_start_is_one_where_nobody_has_said_anything(tmp_path: Path) -> None:
    assert setup_questions.is_first_start(make_settings(tmp_path))
    assert not setup_questions.is_first_start(config.load(environ={"TOWER_HOME": str(tmp_path), "TOWER_PROVIDER": "demo"}))

    setup_questions.record_skip(make_settings(tmp_path))

    assert not setup_questions.is_first_start(make_settings(tmp_path))
    assert (tmp_path / "config.toml").read_text().startswith("# The set-up was skipped")


def test_to_skip_leaves_a_file_that_is_there(tmp_path: Path) -> None:
    loaded = make_settings(tmp_path, "# mine\n")

    setup_questions.record_skip(loaded)

    assert (tmp_path / "config.toml").read_text() == "# mine\n"
