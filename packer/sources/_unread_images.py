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
SUFFIXES = frozenset((*pillow.FORMATS, *_RAW.split(), *_OTHERS.split(), *_MORE.split()))
# suffixes that packer does not read, of formats that packer reads
_OTHER_NAMES = {".jfif": "JPEG", ".jpe": "JPEG", ".jfi": "JPEG", ".jif": "JPEG", ".dib": "BMP"}


def unread_images(names: Iterable[str]) -> dict[str, str]:
    """Return `{path: kind}` of image files that packer does not read. The kind is a suffix, and a format if known."""
    images = {}
    for name in names:
        suffix = suffix_of(name)
        if suffix in SUFFIXES:
            images[name] = suffix
        elif suffix in _OTHER_NAMES:
            images[name] = f"{suffix} ({_OTHER_NAMES[suffix]})"
    return images


def described(images: Mapping[str, str], *, has_decoder: bool = False) -> str:
    """Return a message with counts, names and advice.

    Args:
        images: Result of `unread_images`.
        has_decoder: True if the source has the option --decode-with.
    """
    counts = Counter(images.values())
    kinds = ", ".join(f"{shown(kind)} {count}" for kind, count in sorted(counts.items(), key=lambda pair: -pair[1]))
    advice = ["convert them"]
    if has_decoder and any(kind in pillow.FORMATS for kind in counts):
        advice.append("add --decode-with pillow")
    if any("(" in kind for kind in counts):
        advice.append("rename them by their format, such as to .jpg")
    total = counted(len(images), "image")
    return f"{total} in formats that packer does not read: {kinds} ({listed(images)}); {' or '.join(advice)}"


def reason(kind: str) -> str:
    """Return the reason why an image is skipped. kind: value of `unread_images`."""
    return f"image in a format that packer does not read: {kind}"
