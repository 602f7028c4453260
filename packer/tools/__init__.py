"""Tools: bench, tune, advise, profile, monitor, doctor; how fast loading is on this machine, and what limits it."""
