"""The typed client library of the push protocol. It knows the daemon only through its socket and `endpoints.json`."""
