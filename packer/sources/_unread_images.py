"""Detection of image files in formats, or with suffixes, that packer does not read.

The suffix identifies the format. Packer reports these files instead of ignoring them: a user who packs the photos of a
phone expects the HEIC files, too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from packer.images.backends import pillow_other_formats as pillow
from packer.sources._message_texts import counted, listed, shown, suffix_of

_RAW = ".3fr .arw .cr2 .cr3 .crw .dng .erf .kdc .mrw .nef .nrw .orf .pef .raf .rw2 .sr2 .srw .x3f"
_OTHERS = ".avifs .bpg .cur .dcm .dds .djvu .emf .exr .hdr .heics .jls .jxl .jxr .pam .pbm .pcx .pfm .pic .psb .ras"
_MORE = ".rgbe .sgi .svg .svgz .wbmp .wdp .wmf .xbm .xcf .xpm"
_OTHER_NAMES = ".jfif .jpe .jfi .jif .dib"  # of formats that packer reads
SUFFIXES = frozenset((*pillow.FORMATS, *f"{_RAW} {_OTHERS} {_MORE} {_OTHER_NAMES}".split()))


def unread_images(names: Iterable[str]) -> dict[str, str]:
    """Return `{path: suffix}` of image files that packer does not read."""
    return {name: suffix for name in names if (suffix := suffix_of(name)) in SUFFIXES}


def described(images: Mapping[str, str], *, has_decoder: bool = False) -> str:
    """Return a message with counts, names and advice.

    Args:
        images: Result of `unread_images`.
        has_decoder: True if the source has the option --decode-with, so that the advice may contain it.
    """
    counts = Counter(images.values())
    kinds = ", ".join(f"{shown(kind)} {count}" for kind, count in sorted(counts.items(), key=lambda pair: -pair[1]))
    advice = ["convert them, or rename them by their format, such as to .jpg"]
    if has_decoder and any(kind in pillow.FORMATS for kind in counts):
        advice.append("add --decode-with pillow")
    total = counted(len(images), "image")
    return f"{total} in formats that packer does not read: {kinds} ({listed(images)}); {' or '.join(advice)}"


def reported(images: Mapping[str, str], *, has_decoder: bool = False) -> tuple[list[tuple[str, str]], str]:
    """Return `unread` and `unread_message` of a source. Both are empty if `images` is empty."""
    unread = [(name, f"image in a format that packer does not read: {kind}") for name, kind in images.items()]
    return unread, described(images, has_decoder=has_decoder) if images else ""
