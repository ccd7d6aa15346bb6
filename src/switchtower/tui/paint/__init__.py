"""What the models look like: text with styles. Knows Rich and no widget, so that it can be looked at without a screen."""
