"""Mask alpha loss: finds masks that lose information when decoding drops their alpha channel.

A mask loses information if two pixels of one gray differ in alpha. `packer convert` then prints a warning. Drawing
programs store complete masks in alpha, with one color everywhere. Without alpha, this mask has only one value, which
is an error.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.images.file_types import check_end, npy
from packer.images.file_types._header_record import Buffer, Header
from packer.registry import import_or_explain
from packer.schema import MASK_DTYPES


def loses_alpha(buffer: Buffer, found: Header) -> bool:
    """Return True if two pixels of a mask file have the same gray and different alpha, which decoding drops.

    Raise BadInput if all colors are equal and only alpha differs.
    """
    if found.channels not in (2, 4) or found.palette or found.format == "jpeg" or found.dtype not in MASK_DTYPES:
        return False
    check_end(buffer, found)
    if found.format == "npy":
        pixels = npy.decode(buffer, found)
    else:
        pixels = import_or_explain("packer.images.backends.opencv", "decoding images").stored(buffer, found)
    if pixels.ndim != 3 or pixels.shape[2] not in (2, 4):
        return False
    return is_alpha_lost(pixels[:, :, :-1], pixels[:, :, -1])


def is_alpha_lost(colors: npt.NDArray[Any], alpha: npt.NDArray[Any]) -> bool:
    """Return True if pixels of one gray differ in alpha. Raise BadInput if all colors are equal and alpha is not.

    The gray is the first channel of `colors` (H, W, C). `alpha` is (H, W). Both are uint8, or both uint16.
    """
    if not alpha.size or (alpha == alpha[0, 0]).all():
        return False
    if (colors == colors[:1, :1]).all():
        raise BadInput(
            f"its colors are {colors[0, 0].tolist()} everywhere and its alpha channel, which a mask does not keep, "
            f"has {len(np.unique(alpha))} values: its content is there; save that channel as a gray PNG (Pillow: "
            'Image.open(file).getchannel("A").save(file))'
        )
    bits = 8 * alpha.dtype.itemsize
    values: npt.NDArray[np.unsignedinteger] = colors[:, :, 0].astype(np.uint16 if bits == 8 else np.uint32)
    pairs = np.unique(values << bits | alpha)
    return len(pairs) > len(np.unique(pairs >> bits))
