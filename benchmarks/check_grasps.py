"""Compare the grasp items of genuine sample files with the golden numbers and with a path of scikit-image.

    python benchmarks/check_grasps.py SAMPLES_DIR SPEC_FILE

SAMPLES_DIR holds `cornell` and `jacquard`; SPEC_FILE the tables of label checksums. Exits 1 on any mismatch. For every
sample and each of four packs: rectangles and maps to the bit for four turns, four zooms and both styles; images and
depth by their mean difference. Needs scikit-image and imageio.
"""

import itertools
import re
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from grasp_reference import Reference, draw

from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.grasp import GraspDataset
from packer.grasp.targets import drawn

TURNS = (0, np.pi / 2, 2 * np.pi / 2, 3 * np.pi / 2)
ZOOMS = (1.0, 0.75, 0.5, 0.6180339887)
MOST_LEVELS, MOST_MM = 2.0, 0.5
PACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "cornell, files as they are": ("cornell", {}),
    "cornell, raw": ("cornell", {"codecs": (("rgb", "raw"), ("depth", "raw"))}),
    "jacquard, files as they are": ("jacquard", {}),
    "jacquard, 600 px, raw": ("jacquard", {"resize": "600x600"}),
    "jacquard, 600 px, jpeg:95 + float16": (
        "jacquard",
        {"resize": "600x600", "codecs": (("rgb", "jpeg:95"), ("depth", "raw:float16"))},
    ),
}
# quality of case A (300 px, upright, whole), B (300 px, a quarter turn, zoom 0.75) and C (224 px, as A)
CASES = ((300, 0, 1.0), (300, np.pi / 2, 0.75), (224, 0, 1.0))


def golden(spec: str, key: str) -> tuple[list[str], list[float]]:
    """Checksums of the cases, and sums of cos, sin and width of case A, from the line of a sample."""
    (line,) = re.findall(rf"^\| {key[:4] if len(key) == 4 else key[:10]} \|.*", spec, re.MULTILINE)
    cells = [cell.strip() for cell in line.strip("| ").split("|")]
    at = next(number for number, cell in enumerate(cells) if re.fullmatch(r"\d+ [0-9a-f]{8}", cell))
    sums = [float(word) for word in cells[at + 1].split("/")]
    return [cells[at].split()[1], cells[at + 2].split()[1], *cells[at + 3 :]], sums


def maps_of(dataset: GraspDataset, index: int, rot: float, zoom: float) -> Any:
    """float32 (4, S, S), through the data set's own batches."""
    numbers = (TURNS.index(rot) / 4, (zoom - 0.5) / 0.5)
    made = dataset.batch_decoder([index], dataset.geometry, random=[numbers], take=_take)
    made._zoom[:] = zoom  # noqa: SLF001  0.5 + (zoom - 0.5) is not always the same to the last bit, and 1 is never drawn
    made.fill(0, 1)
    return np.stack([each[0, 0] for each in made.fields()["maps"]])


def _take(size: int) -> Any:
    from packer.datasets.batch_decoder import take_new

    return take_new(size)


def check_golden(pack: Path, spec: str) -> tuple[int, int]:
    """Checksums compared, and how many differ."""
    count = bad = 0
    keys = list(GraspDataset(pack, 300).keys())
    for index, key in enumerate(keys):
        if not len(GraspDataset(pack, 300).get_gtbb(index)):
            continue
        expected, sums = golden(spec, key)
        for crc, (size, rot, zoom) in zip(expected, CASES, strict=False):
            quality = maps_of(GraspDataset(pack, size), index, rot, zoom)[0]
            bad += f"{zlib.crc32(quality.astype(np.uint8).tobytes()):08x}" != crc
            count += 1
        maps = maps_of(GraspDataset(pack, 300), index, 0, 1.0).astype(np.float64)
        on = maps[0] > 0
        openings = drawn(GraspDataset(pack, 300).get_gtbb(index)).opening
        found = [maps[1][on].sum(), maps[2][on].sum(), maps[3][on].sum() * 150]
        # widths are clipped at 150 px in the maps, and not in the table
        bad += not np.allclose(found[:2], sums[:2], atol=0.1)
        bad += openings.max() <= 150 and not np.allclose(found[2], sums[2], atol=0.1)
        count += 2 + (openings.max() <= 150)
    return count, bad


def check_labels(pack: Path, reference: Reference, order: list[int]) -> tuple[int, int]:
    """Rectangles and maps of both styles, for every turn and zoom: compared, and how many differ."""
    count = bad = 0
    for style in ("ggcnn", "grconvnet"):
        dataset = GraspDataset(pack, reference.size, style=style)
        widest = 150.0 if style == "ggcnn" else reference.size / 2
        for number, index in enumerate(order):
            for rot, zoom in itertools.product(TURNS, ZOOMS):
                rectangles = reference.get_gtbb(number, rot, zoom)
                quality, angle, width = draw(rectangles, reference.size)
                width = np.clip(width, 0.0, widest) / widest
                expected = np.stack([quality, np.cos(2 * angle), np.sin(2 * angle), width]).astype(np.float32)
                bad += maps_of(dataset, index, rot, zoom).tobytes() != expected.tobytes()
                corners = np.asarray([each.points for each in rectangles])
                bad += not np.array_equal(dataset.get_gtbb(index, rot, zoom), corners)
                count += 2
    return count, bad


def check_images(pack: Path, reference: Reference, order: list[int]) -> tuple[list[float], list[float]]:
    """Mean differences in gray levels and in mm, one per sample and look."""
    levels, millimeters = [], []
    dataset = GraspDataset(pack, reference.size)
    for number, index in enumerate(order):
        for rot, zoom in zip(TURNS, ZOOMS, strict=True):
            ours = dataset.get_rgb(index, rot, zoom, normalise=False).astype(int)
            levels.append(float(np.abs(ours - reference.get_rgb(number, rot, zoom, normalise=False)).mean()))
            depth = dataset.get_depth(index, rot, zoom) - reference.get_depth(number, rot, zoom)
            millimeters.append(1000 * float(np.abs(depth).mean()))
    return levels, millimeters


def check(name: str, root: Path, pack: Path, spec: str) -> int:
    """One pack; says what was found."""
    source, options = PACKS[name]
    request = SourceSpec(source)
    opened = request.open(root / source)[0]
    convert_source(opened, pack, ConversionOptions(source=request.to_json(opened), **options))
    bad = 0
    goldens, wrong = check_golden(pack, spec)
    bad += wrong
    labels = 0
    for size in (300, 224) if source == "cornell" else (300,):
        reference = Reference(root / source, size)
        keys = [
            path.name[3:7] if source == "cornell" else path.name.removesuffix("_grasps.txt")
            for path in reference.grasps
        ]
        order = [GraspDataset(pack).index_of(key) for key in keys]
        count, wrong = check_labels(pack, reference, order)
        labels += count
        bad += wrong
    levels, millimeters = check_images(pack, reference, order)
    bad += max(levels) > MOST_LEVELS or max(millimeters) > MOST_MM
    print(
        f"{name}: {len(order)} samples; {goldens} golden numbers, {labels} rectangles and maps of {len(TURNS)} turns x "
        f"{len(ZOOMS)} zooms; mean |difference| {np.mean(levels):.2f} levels (worst {max(levels):.2f}), "
        f"{np.mean(millimeters):.3f} mm (worst {max(millimeters):.3f}); mismatches {bad}"
    )
    return bad


def main() -> int:
    """Check every pack."""
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    samples, spec = Path(sys.argv[1]), Path(sys.argv[2]).read_text()
    with tempfile.TemporaryDirectory(prefix="packer-check-") as folder:
        bad = sum(check(name, samples, Path(folder) / str(n), spec) for n, name in enumerate(PACKS))
    print(f"mismatches: {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
