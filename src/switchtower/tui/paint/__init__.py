"""Paints models as styled text. It knows Rich but no widget, so tests can inspect the result without a screen."""
