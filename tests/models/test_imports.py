"""Nothing heavy is loaded until a session needs it: a fresh interpreter tells."""

import subprocess
import sys

HEAVY = (
    "pydantic",
    "pydantic_ai",
    "openai",
    "anthropic",
    "google.genai",
    "httpx2",
    "genai_prices",
    "httpx",
    "starlette",
    "uvicorn",
)

ASKING = """
import asyncio, sys
from switchtower.models import catalog, breaker, provider_errors, entries as prices, remote, request_encoder, connection, port
environ = {"OPENAI_API_KEY": "sk-x", "ANTHROPIC_API_KEY": "sk-y", "GEMINI_API_KEY": "z"}
models = catalog.Catalog({"work": {"provider": "openai", "key_env": "OPENAI_API_KEY"}}, environ)
models.check_model("work", "gpt-5"); models.check_model("anthropic", None); models.check_model("google", None)
assert models.choose_default()[0] == "work"
models.list_secret_variables(), models.list_breakers()
asyncio.run(models.open_model("demo", None))
print([name for name in %r if name in sys.modules])
"""


def test_asking_what_there_is_loads_no_library() -> None:
    finished = subprocess.run([sys.executable, "-c", ASKING % (HEAVY,)], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.strip() == "[]"
