"""Our two looks, and which of them a terminal probably wants."""

from collections.abc import Mapping

from textual.theme import Theme

DARK = Theme(
    name="tower-dark",
    primary="#58a6ff",
    secondary="#388bfd",
    accent="#7cc4ff",
    warning="#e3b341",
    error="#ff7b72",
    success="#56d364",
    foreground="#e6edf3",
    background="#0d1117",
    surface="#161b22",
    panel="#21262d",
    dark=True,
    variables={"muted": "#8b949e"},
)
LIGHT = Theme(
    name="tower-light",
    primary="#0969da",
    secondary="#218bff",
    accent="#0550ae",
    warning="#9a6700",
    error="#cf222e",
    success="#1a7f37",
    foreground="#1f2328",
    background="#ffffff",
    surface="#f6f8fa",
    panel="#eaeef2",
    dark=False,
    variables={"muted": "#59636e"},
)
NAMES = (DARK.name, LIGHT.name)
_LIGHT_BACKGROUNDS = frozenset({"7", "15"})


def guess_theme(environ: Mapping[str, str]) -> str:
    """Some terminals tell the colour of their background; most are dark."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if background in _LIGHT_BACKGROUNDS else DARK.name
