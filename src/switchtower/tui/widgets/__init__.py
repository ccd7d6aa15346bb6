"""The parts of the screen. Each shows one model and reports the user's actions to the app; none talks to the daemon."""
