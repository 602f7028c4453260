"""Images: the bytes of an image file -> pixels. One outcome for a file, whichever library decodes it.

| input                                                        | outcome                                     |
|--------------------------------------------------------------|---------------------------------------------|
| intact, also with zeros or a second image behind it        | its pixels                                  |
| JPEG that lacks nothing but its end marker                   | its pixels                                  |
| anything else that libjpeg warns about; cut, empty or random | DamagedImage                                |
| another format, its data not what its header announces       | DamagedImage, if strict: see strict_check   |
| a name that says another format than the bytes do            | the bytes count, nobody looks at the name   |
| EXIF orientation                                             | ignored; Header has it                      |
| CMYK and everything that is not JPEG                         | OpenCV, whatever decoder was asked for      |

The wall between damaged and sound is libjpeg's: a flipped byte that it does not notice gives other pixels, the same on
every decoder. That is why packs have a crc32 per record.
"""

from packer.images.decode import (
    DCT,
    DCTS,
    DEFAULT_OPTIONS,
    NAMES,
    DecodeOptions,
    DecoderName,
    decode,
    describe,
    validate,
)
from packer.images.field_decoder import Decoder, StoredImage
from packer.images.headers import file_suffixes, sniff
from packer.images.headers._header_record import MAX_DECODED_BYTES, MAX_PIXELS, MAX_SCAN_PIXELS, MAX_SCANS, Header
from packer.images.mask_alpha_loss import loses_alpha

__all__ = [
    "DCT",
    "DCTS",
    "DEFAULT_OPTIONS",
    "MAX_DECODED_BYTES",
    "MAX_PIXELS",
    "MAX_SCANS",
    "MAX_SCAN_PIXELS",
    "NAMES",
    "DecodeOptions",
    "Decoder",
    "DecoderName",
    "Header",
    "StoredImage",
    "decode",
    "describe",
    "file_suffixes",
    "loses_alpha",
    "sniff",
    "validate",
]
