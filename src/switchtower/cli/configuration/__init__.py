"""The parts of `tower config` and `tower setup`: the file's text, the sources of values, checked changes, and setup questions.

The setup neither prints nor asks, so that the command line and the terminal UI ask the same questions.
"""
