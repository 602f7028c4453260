"""Unread formats: files that are pictures, though in a format or under a name that packer does not read.

They are told by their suffix; a file without a suffix, or with one that says nothing, by its first bytes. Never are
they files like any other: whoever packs photos from a phone means the HEIC ones too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from packer.errors import BadInput
from packer.images.backends import pillow
from packer.sources._parse.folder_listing import listed, shown, suffix_of
from packer.sources._trees.file_tree import FileTree

_RAW = ".3fr .arw .cr2 .cr3 .crw .dng .erf .kdc .mrw .nef .nrw .orf .pef .raf .rw2 .sr2 .srw .x3f"
_OTHERS = ".avifs .bpg .cur .dcm .dds .djvu .emf .exr .hdr .heics .jls .jxl .jxr .pam .pbm .pcx .pfm .pic .psb .ras"
_MORE = ".rgbe .sgi .svg .svgz .wbmp .wdp .wmf .xbm .xcf .xpm"
SUFFIXES = frozenset((*pillow.FORMATS, *_RAW.split(), *_OTHERS.split(), *_MORE.split()))
# what no picture is named by: these files are not opened to look at their first bytes
_NO_PICTURES_TEXT = """
.txt .json .jsonl .geojson .xml .csv .tsv .yaml .yml .toml .ini .cfg .conf .md .rst .tex .html .htm .css .js
.log .pdf .doc .docx .xls .xlsx .ppt .pptx .odt .ods .rtf .py .ipynb .pyc .m .mat .r .c .h .cc .cpp .hpp .cu
.java .go .rs .sh .bat .ps1 .sql .db .sqlite .npy .npz .pkl .pickle .pt .pth .ckpt .onnx .pb .tfrecord .h5
.hdf5 .parquet .arrow .lmdb .mdb .bin .dat .zip .tar .gz .tgz .bz2 .xz .zst .7z .rar .pcd .ply .obj .stl .mtl
.off .glb .gltf .urdf .sdf .xyz .las .laz .mp4 .avi .mov .mkv .webm .mpg .mpeg .wav .mp3 .flac .ogg .bag .mcap
.md5 .sha1 .sha256 .names .data .cache .index .idx .lst .list .label .labels .srt .vtt
"""
_NO_PICTURES = frozenset(_NO_PICTURES_TEXT.split())
_READ_SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"))  # read as such
_START_BYTES = 32
_MAGICS = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"8BPS", "PSD"),
    (b"\x76\x2f\x31\x01", "EXR"),
    (b"#?RADIANCE", "HDR"),
    (b"#?RGBE", "HDR"),
)
_READ = ("JPEG", "PNG", "TIFF", "WebP", "BMP")  # formats that are read under their own suffixes
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF"}
_BRANDS |= dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"), "HEIC")


def unread_pictures(folder: FileTree, names: Iterable[str]) -> dict[str, str]:
    """Those of these files that are pictures -> their suffix, with the format where the suffix does not say it.

    Those under the suffixes that are read are none, whatever is in them: a source that does not take them for its own
    carries them along, as it does masks in a folder that it does not know.
    Opens files whose suffix says nothing; one that cannot be read is none: whoever carries it along says so.
    """
    found = {}
    for name in names:
        suffix = suffix_of(name)
        if suffix in SUFFIXES:
            found[name] = suffix
        elif suffix not in _READ_SUFFIXES and suffix not in _NO_PICTURES and (format_name := _format(folder, name)):
            found[name] = f"{suffix or 'no suffix'} ({format_name})"
    return found


def described(pictures: Mapping[str, str]) -> str:
    """`2 pictures in formats that packer does not read: .heic 1, .avif 1 (a.heic, b.avif); ...`, with what to do."""
    counts = Counter(pictures.values())
    kinds = ", ".join(f"{shown(kind)} {count}" for kind, count in sorted(counts.items(), key=lambda pair: -pair[1]))
    total = len(pictures)
    ways = ["convert them"]
    if any(kind in pillow.FORMATS for kind in counts):
        ways.append("say --decode-with pillow where Pillow reads them")
    if any("(" in kind for kind in counts):
        ways.append("name them by what they are, such as .jpg")
    if all(kind.partition("(")[2].rstrip(")") in _READ for kind in pictures.values()):
        noun, form = ("picture", "a name") if total == 1 else ("pictures", "names")
        return (
            f"{total} {noun} under {form} that packer does not read: {kinds} ({listed(pictures)}); rename them by what "
            "they are, such as to .jpg"
        )
    noun, form = ("picture", "a format") if total == 1 else ("pictures", "formats")
    return f"{total} {noun} in {form} that packer does not read: {kinds} ({listed(pictures)}); {', '.join(ways)}"


def reason(kind: str) -> str:
    """Why one of them is left out."""
    if kind.partition("(")[2].rstrip(")") in _READ:
        return f"picture under a name that packer does not read: {kind}; rename it"
    return f"picture in a format that packer does not read: {kind}"


def _format(folder: FileTree, name: str) -> str | None:
    try:
        start = folder.start(name, _START_BYTES)
    except BadInput:
        return None
    for magic, format_name in _MAGICS:
        if start.startswith(magic):
            return format_name
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "WebP"
    if start[4:8] == b"ftyp":
        return _BRANDS.get(start[8:12])
    if start[:2] == b"BM" and start[6:10] == b"\0\0\0\0" and start[15:18] == b"\0\0\0":
        return "BMP"
    return None
