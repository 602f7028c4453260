"""Packs: folders with a manifest, an index and parts.

`reader.Pack` opens a pack. `verification.problems` checks one, and `index_rebuild.reindex` writes its index again.
"""
