"""A pack on disk: manifest, index, parts; how it is written atomically, opened and verified."""
