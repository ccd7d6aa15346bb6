"""A host's line to its hub: dials out, tells of the runs that live here, does what the hub passes on."""
