"""A host's side of relay: what is asked of the runs that live here."""
