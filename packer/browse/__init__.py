"""Browse: the server of `packer view`, which shows packs in a browser of this machine. It never writes.

`view_server.serve` runs it. `page` contains the page: hand-written ES modules and one style sheet.
"""
