"""Presets: sessions of a kind, each described by a TOML file. `definition` reads one, `catalogue` finds them by name.

Nothing is decided here: whoever starts a session says what of it holds.
"""
