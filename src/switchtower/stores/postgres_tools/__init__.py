"""A PostgreSQL store looked at from outside: checked, counted, examined. Nothing here writes, and a tower may run meanwhile."""
