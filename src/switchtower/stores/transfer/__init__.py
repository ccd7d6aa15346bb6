"""Copies a whole store to another place, row by row and verified. No process may write the stores meanwhile."""
