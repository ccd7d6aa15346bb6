"""`tower run` and `tower models` against a server of models: cut streams, cut answers, names that it lists."""

from tests.cli.conftest import TowerCommand

from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer, run_in_thread

KEY = "sk-test-0123456789abcdefghijklmnop"


def configure(tower: TowerCommand, server: ModelServer, **more: str) -> None:
    lines = ["[models.work]", 'provider = "openai-compatible"', f'base_url = "{server.url}"', 'key_env = "WORK_KEY"']
    (tower.home / "config.toml").write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in more.items()), ""]))
    tower.environment["WORK_KEY"] = KEY


def test_a_stream_that_was_cut_is_on_stdout_once(tower_command: TowerCommand) -> None:
    cut = script.ScriptedReply((script.TextStep("Once upon a "), script.CutStep()))
    with run_in_thread([cut, script.reply_text("Once upon a time.")], models=["qwen3"]) as server:
        configure(tower_command, server)
        ended = tower_command("run", "--headless", "--provider", "work", "tell a story")

    assert (ended.code, ended.stdout) == (0, b"Once upon a time.\n"), ended.stderr
    assert "! Model call failed; retrying (2 of 5) in " in ended.stderr
    assert "(work: connection lost before the answer was complete)" in ended.stderr


def test_an_answer_that_the_budget_cut_fails_and_says_so(tower_command: TowerCommand) -> None:
    answers = [
        script.reply_text("and so", finish="length", usage=script.ScriptedUsage(5, 50)),
        script.reply_text("ok", usage=script.ScriptedUsage(90, 1)),
    ]
    with run_in_thread(answers, models=["qwen3"]) as server:
        configure(tower_command, server)
        cut = tower_command("run", "--headless", "--provider", "work", "--max-tokens", "50", "--json", "tell a story")
        over = tower_command("run", "--headless", "--provider", "work", "--max-tokens", "50", "--json", "tell another")

    assert cut.code == 1
    assert (cut.json["outcome"], cut.json["stopReason"]) == ("failed", "length")
    assert over.code == 0
    assert over.json["overrun"] == "The run took more than its budget: 91 of 50 tokens"


def test_names_are_checked_and_listed(tower_command: TowerCommand) -> None:
    with run_in_thread([], models=["qwen3", "llama4"]) as server:
        configure(tower_command, server)
        assert tower_command("models", "work").stdout == b"qwen3\nllama4\n"
        assert tower_command("models", "--all", "--json").json == [
            {"provider": "work", "model": "qwen3"},
            {"provider": "work", "model": "llama4"},
        ]
        refused = tower_command("run", "--headless", "--provider", "work", "--model", "lama4", "hi")
        unpriced = tower_command("run", "--headless", "--provider", "work", "--max-cost", "0.5", "hi")

    assert (refused.code, unpriced.code) == (1, 1)
    assert "Unknown model: `lama4`; hint: `work` has `llama4`" in refused.stderr
    assert "the price of `qwen3` is unknown; hint: set `price_in` and `price_out` in `[models.work]`" in unpriced.stderr
