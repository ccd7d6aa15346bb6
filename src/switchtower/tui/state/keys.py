"""Keys as a terminal would send them to its program. Pure. The names are Textual's."""

DETACH_KEY = "ctrl+right_square_bracket"
_NAMED = {
    "enter": "\r",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "backspace": "\x7f",
    "ctrl+backspace": "\x17",
    "escape": "\x1b",
    "delete": "\x1b[3~",
    "insert": "\x1b[2~",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "shift+enter": "\n",
    "ctrl+at": "\x00",
    "ctrl+backslash": "\x1c",
    "ctrl+circumflex_accent": "\x1e",
    "ctrl+underscore": "\x1f",
}
_CURSOR = {"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}
_FUNCTION = {
    1: "OP",
    2: "OQ",
    3: "OR",
    4: "OS",
    5: "[15~",
    6: "[17~",
    7: "[18~",
    8: "[19~",
    9: "[20~",
    10: "[21~",
    11: "[23~",
    12: "[24~",
}
_MODIFIERS = {"shift": 1, "alt": 2, "ctrl": 4}


def encode_key(key: str, character: str | None, *, application_cursor: bool = False) -> str | None:
    """What a key types; None when it types nothing. Programs may have switched their cursor keys to another spelling."""
    if key in _NAMED:
        return _NAMED[key]
    *modifiers, name = key.split("+") if key != "+" else ["+"]
    if name in _CURSOR:
        number = 1 + sum(_MODIFIERS.get(modifier, 0) for modifier in modifiers)
        if number > 1:
            return f"\x1b[1;{number}{_CURSOR[name]}"
        return f"\x1b{'O' if application_cursor else '['}{_CURSOR[name]}"
    if name.startswith("f") and name[1:].isdigit() and int(name[1:]) in _FUNCTION and not modifiers:
        return f"\x1b{_FUNCTION[int(name[1:])]}"
    if "ctrl" in modifiers and len(name) == 1 and name.isalpha() and name.isascii():
        typed = chr(ord(name.lower()) - ord("a") + 1)
        return f"\x1b{typed}" if "alt" in modifiers else typed
    if "alt" in modifiers and (character or len(name) == 1):
        return f"\x1b{character or name}"
    return character if character is not None and character.isprintable() else None
