"""Git, called so that only git runs: whatever a repository has configured, nothing of it is executed."""
