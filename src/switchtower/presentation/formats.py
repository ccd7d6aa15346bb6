"""Formats ages, durations, sizes, token counts and prices for people. Pure."""

_AGE_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def format_age(seconds: float) -> str:
    """Formats an age or a duration in one unit, with a space: `5 min`."""
    whole = max(0, int(seconds))
    for unit, name in _AGE_UNITS:
        if whole >= unit:
            return f"{whole // unit} {name}"
    return f"{whole} s"


_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_size(count: float) -> str:
    """Formats a number of bytes in the largest unit of which there is at least one."""
    unit = 0
    while count >= 1024 and unit < len(_SIZE_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_SIZE_UNITS[unit]}"


_SHORT_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def format_short_age(seconds: float) -> str:
    """Formats an age in one unit, without a space: `5m`."""
    whole = max(0, int(seconds))
    for unit, name in _SHORT_UNITS:
        if whole >= unit:
            return f"{whole // unit}{name}"
    return f"{whole}s"


def format_duration(milliseconds: float) -> str:
    if milliseconds < 1_000:
        return f"{max(0, round(milliseconds))} ms"
    seconds = milliseconds / 1_000
    if seconds < 60:
        return f"{seconds:.1f} s"
    return format_clock(seconds)


def format_clock(seconds: float) -> str:
    """Formats a duration like a stopwatch: `4:05`, `1:04:05`."""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3_600, whole % 3_600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def format_tokens(count: int) -> str:
    if count < 1_000:
        return str(count)
    if count < 1_000_000:
        return f"{count / 1_000:.1f}k" if count < 100_000 else f"{count // 1_000}k"
    return f"{count / 1_000_000:.1f}M"


def format_dollars(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 1 or not cost else f"${cost:.4f}"


def format_count(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
