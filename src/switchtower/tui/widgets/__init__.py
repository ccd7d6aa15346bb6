"""The parts of the screen. Each shows one model and tells the app what the person wants; none talks to the daemon."""
