"""How long ago something was, for people. Pure."""

_AGE_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def format_age(seconds: float) -> str:
    """How long ago, or how long since, in one unit."""
    whole = max(0, int(seconds))
    for unit, name in _AGE_UNITS:
        if whole >= unit:
            return f"{whole // unit} {name}"
    return f"{whole} s"
