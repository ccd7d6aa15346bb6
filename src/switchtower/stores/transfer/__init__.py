"""A whole store from one place to another, row by row and checked. For stores that nobody writes meanwhile."""
