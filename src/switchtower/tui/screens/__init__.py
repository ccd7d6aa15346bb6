"""Whole screens and the questions that come before them."""
