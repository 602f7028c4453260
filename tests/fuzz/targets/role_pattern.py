"""Role patterns as users type them, with names of files: the path of a match is the name."""

from collections.abc import Iterator

from packer.sources._file_pattern import SampleName
from packer.sources.image_files._pair_layouts import PairRole
from tests.fuzz import words
from tests.fuzz.target import Disagreement

TOKENS = (*words.PATHS, b"{stem}", b"{folder}/", b"{split}", b"{number}", b"=", b".png")
TOKENS += (b":mask", b":mask:uint16", b":depth:0")


def seeds() -> Iterator[bytes]:
    yield b"mask=masks/{folder}/gt_{stem}.png:mask\nmasks/a/b/gt_1.png\nmasks/gt_1.2.png\n"
    yield b"image={split}/{stem}:image\ntrain/1.jpg\ntrainannot/1.png\n"
    yield b"ids=gtFine/{split}/{folder}/{stem}_ids.png:mask:uint16\ngtFine/train/bonn/b_0_ids.png\n"
    yield b"parts={split}/{folder}/{stem}_parts_{number}.png:count\ntraining/1_parts_1.png\n"
    yield b"d={split}/x{split}/{stem}.tiff:depth:-1\na/xa/1.tiff\na/xb/1.tiff\n"


def check(data: bytes) -> None:
    text, *names = data.decode("utf-8", "surrogateescape").split("\n")
    pattern = PairRole.parse(text).pattern
    for name in names:
        found = pattern.match(name)
        if found is None:
            continue
        folder = name[: name.rfind("/") + 1]
        if not found.stem or not pattern.fits_folder([folder]):
            raise Disagreement(f"{text!r} and {name!r}: {found}")
        same = pattern.path(found).removesuffix(".*")
        if "{number}" not in text and "" not in name.split("/") and not pattern.takes_any_suffix and same != name:
            raise Disagreement(f"{name!r} is named {same!r} again")
        if not isinstance(found, SampleName) or found.key.count("\0") > name.count("\0"):
            raise Disagreement(f"{found}")
