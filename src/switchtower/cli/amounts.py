"""Sizes for people. Pure."""

_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_size(count: float) -> str:
    """Bytes in the largest unit of which there is at least one."""
    unit = 0
    while count >= 1024 and unit < len(_SIZE_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_SIZE_UNITS[unit]}"
