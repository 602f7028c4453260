"""What the work folder of a conversion holds; staging knows an unfinished copy by it, and loads nothing that converts.

`.<name>.partial/` beside the target, a work folder (files/work_folder.py):
    plan.json              the plan's fingerprint and options; there from before the first part on
    done/part-00000.json   of a finished part, there once the part and its index entries are on disk
    attempts/<attempt>/    a part that another process builds; with record.json once complete
    pieces/<part>          the index entries of a part
    pack/                  the parts; becomes the target by one rename
    pack.old/              the pack that is replaced, for a moment, on a system that cannot exchange two folders at once
"""

import re

from packer.files.work_folder import ANYTHING
from packer.formats._columns import SPOOL_NAME
from packer.pack.unlisted_files import PACK_NAMES

PACK, PIECES, DONE, PLAN = "pack", "pieces", "done", "plan.json"
ATTEMPTS, RECORD = "attempts", "record.json"
BEING_WRITTEN = ".new"  # after a name: a file that is being written
NAMES = {
    rf"{re.escape(PLAN)}({re.escape(BEING_WRITTEN)})?": ANYTHING,
    DONE: rf"part-[0-9]+\.json({re.escape(BEING_WRITTEN)})?",
    PIECES: r"part-[0-9]+.*",
    ATTEMPTS: r"part-[0-9]+-[0-9a-f]{32}",
    rf"{PACK}(\.old)?": rf"{PACK_NAMES}|{re.escape(SPOOL_NAME)}.*",
}
