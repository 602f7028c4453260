"""A pack on disk: manifest, index, parts; how it is written atomically, opened and verified.

reader.py opens one (`Pack`); verification.py and extraction.py have the calls that users make: `packer.verify` and
`packer.extract`.
"""
