"""Work folder layout: names of the files in the work folder of a conversion. Modules that copy packs use them too.

The work folder `.<name>.partial/` is next to the target (see files/work_folder.py).

`plan.json`: fingerprint and options of the plan, written before the first part.

`done/part-00000.json`: the record of a finished part, written after the part and the index entries.

`attempts/<task>/`: a part that a worker process builds. If the part is complete, the folder contains `record.json`.

`pieces/<part>`: the index entries of a part.

`pack/`: the parts. When the pack is complete, this folder is renamed to the target.

`pack.old/`: the replaced pack, between two renames, if the system cannot swap two folders.
"""

import re

from packer.files.work_folder import ANYTHING
from packer.formats._column_part import SPOOL_NAME
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
