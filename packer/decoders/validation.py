"""Validation: whether a file is what it announces, without keeping its pixels."""

from packer.decoders import jpeg, libjpeg
from packer.decoders.header import Buffer, Header
from packer.decoders.pixels import check_kind, decode
from packer.decoders.sniffing import check_end, sniff


def validate(buffer: Buffer, kind: str, *, full: bool = True, header: Header | None = None) -> Header:
    """The header of a file that `decode(buffer, kind)` takes; raises DamagedImage, BadInput or Refused as that does.

    full: read all of it: a JPEG's entropy-coded data (which is all that libjpeg ever warns about), of other formats
      the pixels and the data, see packer.decoders.strict_check. One outcome, whichever JPEG library is installed.
      False looks at the header and at the end only: a truncated file is found, damage in the middle is not. A JPEG
      without its end marker is read in full, since then only its data can tell whether more is missing.
    header: what sniff(buffer) gave, where the caller has it.
    """
    found = header or sniff(buffer)
    check_kind(found, kind)
    if found.format == "jpeg":
        gray = kind != "image" and found.channels > 1  # whether the channels are equal is not in the header
        if full and gray:
            decode(buffer, kind, header=found)
        elif full or not jpeg.has_end(buffer, found):
            libjpeg.check(buffer, found)
        return found
    check_end(buffer, found)
    if full:
        decode(buffer, kind, header=found)
    return found
