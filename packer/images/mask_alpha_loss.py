"""Dropped alpha: what a mask loses with its alpha channel, which is dropped as an image's is.

Drawing programs write masks in it: white everywhere, and clear where there is nothing. Such a mask would be of one
value.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput


def says_alpha_more(colours: npt.NDArray[Any], alpha: npt.NDArray[Any]) -> bool:
    """Whether two pixels of one gray differ in alpha; raises BadInput where all colours are one, and alpha is not.

    colours: uint8 (H, W, C), of which the first is looked at where they vary. alpha: uint8 (H, W).
    """
    if not alpha.size or (alpha == alpha[0, 0]).all():
        return False
    if (colours == colours[:1, :1]).all():
        raise BadInput(
            f"its colours are {colours[0, 0].tolist()} everywhere and its alpha channel, which a mask does not keep, "
            f"has {len(np.unique(alpha))} values: its content is there; save that channel as a gray PNG (Pillow: "
            'Image.open(file).getchannel("A").save(file))'
        )
    pairs = np.unique(colours[:, :, 0].astype(np.uint16) << 8 | alpha)
    return len(pairs) > len(np.unique(pairs >> 8))
