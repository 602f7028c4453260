"""Pack genuine sample files and compare what comes out with the files, with Pillow and with independent numbers.

    python benchmarks/check_packs.py SAMPLES_DIR

SAMPLES_DIR holds `cornell`, `jacquard` and `photos`. Exits 1 on any mismatch. Read back in two ways: bytes through raw
lmdb, pixels through LMDBDataset with every decoder; torchvision's ImageFolder is written out here with Pillow.
"""

import json
import sys
import tempfile
from pathlib import Path

import check_samples
import lmdb
import numpy as np
from PIL import Image

from packer.conversion.convert import ConversionSummary, convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.datasets.pack_dataset import LMDBDataset
from packer.pack.verification import problems
from packer.sources.image_files.folder import SUFFIXES

PHOTOS = (
    "imagenet-sample-images",
    "exif-orientation-examples",
    "raccoon_dataset/images",
    "u2net_test_data/test_data/test_images",
)


def packed(root: Path, target: Path, **source_options: str) -> ConversionSummary:
    """Convert with bytes kept and full validation."""
    request = SourceSpec("auto", source_options)
    source, _ = request.open(root)
    return convert_source(source, target, ConversionOptions(source=request.to_json(source)))


def stored(pack: Path) -> list[dict[str, bytes]]:
    """Every value, through lmdb alone."""
    manifest = json.loads((pack / "packer.json").read_bytes())
    names = [field["name"] for field in manifest["schema"]]
    records = []
    for part in manifest["parts"]:
        with lmdb.open(str(pack / part["name"]), subdir=False, readonly=True, lock=False) as env, env.begin() as view:
            for row in range(part["samples"]):
                record = {name: view.get((row * len(names) + at).to_bytes(8, "big")) for at, name in enumerate(names)}
                records.append({name: bytes(value) for name, value in record.items()})
    return records


def check_grasps(root: Path, pack: Path) -> int:
    """Bytes equal to the files', decoded pixels equal to Pillow's and the checksums, labels verbatim."""
    summary = packed(root, pack)
    bad = 0
    records = stored(pack)
    for record in records:
        files = json.loads(record["files"])
        for field, name in files.items():
            value = record.get(f"{field}_file" if field.startswith("grasps") else field)
            bad += value is not None and value != (root / name).read_bytes()
    for decoder in ("turbojpeg", "opencv"):
        for sample, record in zip(LMDBDataset(pack, output="numpy", decoder=decoder), records, strict=True):
            with Image.open(root / json.loads(record["files"])["rgb"]) as image:
                bad += not np.array_equal(sample["rgb"], np.asarray(image.convert("RGB")))
            table = check_samples.CORNELL + check_samples.JACQUARD
            name = sample["key"] if len(sample["key"]) == 4 else sample["key"][:10]
            (line,) = (line for line in table.splitlines() if line.startswith(name))
            sums = {
                check_samples.crc(sample[field])
                for field in ("rgb", "depth", "depth_stereo", "mask")
                if field in sample
            }
            bad += not sums <= set(line.split())
    found = list(problems(pack, level="full"))
    print(
        f"{root.name}: {summary.samples} samples, incomplete {[key for key, _ in summary.incomplete]}, mismatches {bad}"
    )
    return bad + len(found)


def check_photos(root: Path, pack: Path) -> int:
    """Order, labels and pixels as torchvision's ImageFolder with Pillow gives them."""
    expected: list[tuple[str, int | None]] = list(check_samples.image_folder(root))
    if not expected:  # no folder to be a class: all images, sorted, without labels
        names = sorted(path.name for path in root.iterdir() if path.name.lower().endswith(SUFFIXES))
        expected = [(name, None) for name in names]
    summary = packed(root, pack)
    bad = int(summary.samples != len(expected))
    records = stored(pack)
    modes: dict[str, int] = {}
    for decoder in ("turbojpeg", "opencv"):
        dataset = LMDBDataset(pack, output="numpy", decoder=decoder)
        for index, (name, label) in enumerate(expected):
            sample = dataset[index]
            bad += sample["key"] != name or sample.get("label") != label
            bad += records[index]["image"] != (root / name).read_bytes()
            with Image.open(root / name) as image:
                kind = f"{image.mode}{' progressive' if image.info.get('progressive') else ''}"
                modes[kind] = modes.get(kind, 0) + 1
                bad += not np.array_equal(sample["image"], np.asarray(image.convert("RGB")))
    modes = {kind: count // 2 for kind, count in modes.items()}
    print(f"{root.name}: {summary.samples} images {modes}, mismatches {bad}")
    return bad


def main() -> int:
    """Check everything."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    samples, bad = Path(sys.argv[1]), 0
    with tempfile.TemporaryDirectory(prefix="packer-check-") as name:
        for number, folder in enumerate(("cornell", "jacquard")):
            bad += check_grasps(samples / folder, Path(name) / f"{number}.pack")
        for number, folder in enumerate(PHOTOS):
            bad += check_photos(samples / "photos" / folder, Path(name) / f"photos{number}.pack")
        bad += check_photos(samples / "photos", Path(name) / "photos.pack")
    print(f"mismatches: {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
