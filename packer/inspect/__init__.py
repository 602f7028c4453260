"""Inspect: what is in a pack, for people: contact sheets and statistics."""
