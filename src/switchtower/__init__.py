"""Switchtower: one daemon that holds long-lived coding-agent sessions and speaks to any client."""

__version__ = "0.1.0"
