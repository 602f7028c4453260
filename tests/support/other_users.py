"""Other users: tests in which a child of root becomes one, who must be able to enter the folder of this clone."""

import os
from pathlib import Path

import pytest

_CLONE = Path(__file__).resolve().parents[2]
_BARRED = [folder for folder in (_CLONE, *_CLONE.parents) if not folder.stat().st_mode & 0o001]

# a registry looks for packer's own files, also in the child
enter_the_clone = pytest.mark.skipif(
    os.geteuid() == 0 and bool(_BARRED),
    reason=f"other users cannot enter {', '.join(map(str, _BARRED))}: clone the repository elsewhere",
)
