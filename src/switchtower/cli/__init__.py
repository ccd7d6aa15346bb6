"""The command line: `tower`, with its aliases `push` and `pushd`. It knows the daemon only through the client library."""
