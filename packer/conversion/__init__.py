"""Source -> pack: plan the parts, build each one, publish them all at once."""
