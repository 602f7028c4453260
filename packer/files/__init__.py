"""Files: what may be named, opened, made, removed and shown, where a pack or another user could mean harm."""
