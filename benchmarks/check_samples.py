"""Compare what the sources read from genuine sample files with numbers measured independently of packer.

    python benchmarks/check_samples.py SAMPLES_DIR

SAMPLES_DIR holds `cornell`, `jacquard` and `photos`. Prints one line per sample; exits 1 on any mismatch.
Checksums are crc32 of the decoded arrays (RGB uint8 HWC; depth float32; mask uint8), little endian, C order.
"""

import os
import sys
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import printable
from packer.sources import base, load
from packer.sources._recognition import detect
from packer.sources.grasp._label_files import corners
from packer.sources.image_files.folder import SUFFIXES

# key, object, category, positives/with NaN/negatives, center of the grasps (row,col), depth range in m, crc of rgb and
# depth
CORNELL = """
0100 26 Remote_Controller 4/0/3 302,285 0.0332..2.0346 a2190ac3 e1a729da
0101 26 Remote_Controller 4/0/1 295,271 0.0343..2.0346 d6edcb59 c96e76f6
0102 27 Stapler 4/0/3 283,276 0.0342..2.0346 f0c6688c f267ced9
0103 27 Stapler 4/0/3 284,255 0.0342..2.0358 9dbd7ac6 8669934d
0109 28 Sun_Glasses 2/0/3 295,282 0.0342..2.0346 1b721e6b 6f67446c
0122 32 Computer_Mouse 2/0/3 273,285 0.0353..2.0340 cdbcebd1 7ca596c4
0132 34 Marker 3/2/3 301,276 0.0342..2.0376 e5fe12d9 86c950b1
0133 35 Sun_Glasses 4/0/3 285,271 0.0342..2.0376 bc92427f 848e123f
0147 38 Box 5/0/4 241,242 0.0342..2.0346 314bd96f 22979e7e
0154 40 Sun_Glasses 6/0/0 287,277 0.0323..2.0382 3deff4f9 ddc0af40
0156 40 Sun_Glasses 10/0/3 289,244 0.0323..2.0429 1d80f4d6 8a377054
0165 43 Hair_Brush 2/1/3 285,308 0.0332..2.0346 3de88434 e0c8094c
0188 48 Goggles 10/0/3 288,293 0.0342..2.0376 957e047f 99816649
0199 51 Camera 4/0/3 274,262 0.0323..2.0393 cf720a1f 6e4f4190
"""
# beginning of the key, grasps/distinct, mask px, least depth in m, stereo: greatest depth/invalid px, crc of rgb,
# depth, stereo depth and mask
JACQUARD = """
0_1a2a5a06 none 29613 1.3260 1.5921/10398 b050f8a6 2bcd32ed 9ba9e3b7 b32debf2
0_1a9fa4c2 127/39 34045 1.4082 1.5772/8650 f9213195 17ce1fc4 c9c4c362 90d11f32
1_1a9fa4c2 139/41 44089 1.3976 1.5759/10164 d2b4110e 1952ccc9 79108d93 7a94c7f6
0_1d7830c5 50/10 33253 1.4324 1.5763/164 595bc286 a92e19e4 9268cdb3 e1edc91d
1_1d7830c5 38/9 25838 1.4324 1.5759/321 4c20382f f68b815a 9f9e96df 87b603fb
2_1d7830c5 49/10 31267 1.4324 1.5762/312 7a7da29e 4dd3ccce 160e0534 3bc49570
0_244cc870 130/34 32034 1.4043 1.5785/2806 a6c6e48f ef08750a e0349f8b 04083bc3
0_2f486fc4 44/10 10911 1.4136 1.5768/2386 520a158f 5cf63c16 d1ddd3f0 2ce23302
0_e35c7e8c 136/39 21695 1.4216 1.5902/1650 fbf803f6 d85193b7 d37eff2b 488f1453
0_ffe702c0 51/12 9790 1.4212 1.5826/1466 ffe82554 6aa8655b 3efc714a 3a90d4bc
"""
Array = npt.NDArray[Any]


def decode(data: bytes) -> Array:
    array = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if array is None:
        raise ValueError("a sample file does not decode")
    return np.ascontiguousarray(array[:, :, ::-1]) if array.ndim == 3 else np.asarray(array)


def crc(array: Array) -> str:
    return f"{zlib.crc32(array.tobytes()):08x}"


def cornell_line(sample: base.Sample) -> str:
    rgb, depth = decode(sample["rgb"]), decode(sample["depth"])
    written = sample["grasps_file"].decode().split()
    rectangles = len(written) // 8
    counts = f"{len(sample['grasps'])}/{rectangles - len(sample['grasps'])}/{len(sample['grasps_negative'])}"
    x, y = np.trunc(np.round(sample["grasps"]).reshape(-1, 2).mean(axis=0)).astype(int)
    depths = f"{depth.min():.4f}..{depth.max():.4f}"
    return (
        f"{sample['key']} {sample['object_id']} {sample['category']} {counts} {y},{x} {depths} {crc(rgb)} {crc(depth)}"
    )


def jacquard_line(sample: base.Sample) -> str:
    rgb, depth, stereo, mask = (decode(sample[name]) for name in ("rgb", "depth", "depth_stereo", "mask"))
    rows = sample["grasp_rows"]
    grasps = f"{len(rows)}/{len(np.unique(rows[:, :4], axis=0))}" if "grasps_file" in sample["files"] else "none"
    begin = sample["key"][:10]
    pixels = f"{(mask == 255).sum()} {depth.min():.4f} {stereo.max():.4f}/{(stereo == -1).sum()}"
    return f"{begin} {grasps} {pixels} {crc(rgb)} {crc(depth)} {crc(stereo)} {crc(mask)}"


def compare(found: list[str], expected: str) -> int:
    wanted = expected.split("\n")[1:-1]
    bad = 0
    for line in sorted({*found, *wanted}):
        verdict = "ok" if line in found and line in wanted else "FOUND" if line in found else "EXPECTED"
        bad += verdict != "ok"
        print(f"{verdict:8} {printable(line)}")
    return bad


def inside(grasps: Array, mask: Array) -> Array:
    """Whether each end of each opening axis lies on the object."""
    ends = np.stack([grasps[:, [0, 3]].mean(axis=1), grasps[:, [1, 2]].mean(axis=1)]).reshape(-1, 2)
    x, y = np.clip(np.round(ends).astype(int), 0, np.array(mask.shape[::-1]) - 1).T
    result: Array = mask[y, x] == 255
    return result


def check_angle_sign(source: base.Source) -> int:
    """Grippers close from outside: most opening ends lie beside the object, far fewer with the angle's sign turned."""
    right, wrong = [], []
    for index in range(len(source)):
        sample = source[index]
        mask = decode(sample["mask"])
        right.append(inside(sample["grasps"], mask))
        wrong.append(inside(corners(sample["grasp_rows"] * [1, 1, -1, 1, 1]), mask))
    share, turned = np.concatenate(right).mean(), np.concatenate(wrong).mean()
    bad = int(share * 2 > turned)
    verdict = "EXPECTED" if bad else "ok"
    print(f"{verdict:8} opening ends on the object: {share:.1%}, with the other sign {turned:.1%}")
    return bad


def image_folder(root: Path) -> list[tuple[str, int]]:
    """Torchvision's rule, written out: relative path and label of each sample."""
    samples = []
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    for label, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(root / name, followlinks=True)):
            paths = [Path(folder, file).relative_to(root).as_posix() for file in sorted(files)]
            samples += [(path, label) for path in paths if path.lower().endswith(SUFFIXES)]
    return samples


def check_folder(root: Path) -> int:
    source = load("folder").Source(root)
    found = [(sample["key"], int(sample["label"])) for sample in (source[index] for index in range(len(source)))]
    bad = int(found != image_folder(root))
    print(f"{'EXPECTED' if bad else 'ok':8} {len(found)} images in the order and with the labels of ImageFolder")
    return bad


def check_grasps(root: Path, name: str) -> int:
    found = detect(root)
    print(f"{'ok' if found[0] == name else 'EXPECTED':8} {found[1]}")
    source = load(name).Source(root)
    line, expected = (cornell_line, CORNELL) if name == "cornell" else (jacquard_line, JACQUARD)
    bad = compare([line(source[index]) for index in range(len(source))], expected)
    return bad + (found[0] != name) + (check_angle_sign(source) if name == "jacquard" else 0)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__)
        return 2
    root = Path(arguments[0])
    bad = check_grasps(root / "cornell", "cornell") + check_grasps(root / "jacquard", "jacquard")
    bad += check_folder(root / "photos")
    print(f"mismatches: {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
