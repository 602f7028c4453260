"""Images: converts the bytes of an image file to pixels. The result is the same for every decoding library.

| input                                                        | outcome                                     |
|--------------------------------------------------------------|---------------------------------------------|
| intact, also followed by zeros or a second image             | its pixels                                  |
| JPEG that lacks only its end marker                          | its pixels                                  |
| any other warning of libjpeg; cut, empty or random bytes     | DamagedImage                                |
| another format whose data does not match its header          | DamagedImage, if strict: see strict_check   |
| a file name with the suffix of another format                | decoded by its bytes, not by its name       |
| EXIF orientation                                             | ignored; `Header.orientation` contains it   |
| CMYK, and every format other than JPEG                       | decoded by OpenCV with every `decoder`      |

A JPEG is damaged if libjpeg reports it. A changed byte that libjpeg does not notice changes pixels, in the same way in
every decoder. Packs therefore store a crc32 per record.
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
from packer.images.file_types import file_suffixes, sniff
from packer.images.file_types._header_record import MAX_DECODED_BYTES, MAX_PIXELS, MAX_SCAN_PIXELS, MAX_SCANS, Header
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
