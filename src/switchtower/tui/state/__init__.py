"""The state of the terminal UI, without a terminal: pure models that the widgets show. Nothing here does I/O or draws."""
