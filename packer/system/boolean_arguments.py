"""Boolean arguments: those that are True or False, refused where they are anything else; 0 and 1 are these too.

A text is true to Python whatever it says: `overwrite="no"`, as a configuration file or a command line gives it, would
replace a pack.
"""

from collections.abc import Mapping

import numpy as np

from packer.errors import WrongType


def check_switches(given: Mapping[str, object]) -> None:
    """Raise WrongType for an argument that is neither True nor False; 0 and 1 are these, as in Python.

    given: name -> value.
    """
    for name, value in given.items():
        if not (isinstance(value, (bool, int, np.bool_, np.integer)) and value in (0, 1)):
            raise WrongType(f"{name}={value!r:.60}: expected True or False")
