"""What the terminal UI knows, without a terminal: pure models that the widgets show. Nothing here does I/O or draws."""
