"""`python -m bench`: the daemon's figures beside bare baselines, measured in the same run."""
