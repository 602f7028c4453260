"""The main job, end to end: a folder, packed, read back through packer.open and a DataLoader, and timed."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

from packer.conversion.source_spec import SourceSpec
from packer.datasets.pack_dataset import open as open_pack
from packer.sources.base import Source
from packer.system.parallel import usable_cores

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
_SIZE = (320, 240)  # width, height
_SECONDS = 4.0
_PHOTOS = """
import packer
from packer.geometry import RandomResizedCrop
from torch.utils.data import DataLoader

dataset = packer.open("out.pack", geometry=RandomResizedCrop(224))
for batch in DataLoader(dataset, batch_size=8, num_workers=2, shuffle=True):
    batch["image"]  # uint8 (8, 3, 224, 224)"""
_GRASPS = """
from packer.grasp import GraspDataset
from torch.utils.data import DataLoader

dataset = GraspDataset("out.pack", style="ggcnn")
for x, y, index, turn, zoom in DataLoader(dataset, batch_size=8, num_workers=2, shuffle=True):
    x, y  # float32 (8, 4, 300, 300): depth and RGB; the maps quality, cos, sin, width"""


class FolderDataset(Dataset[dict[str, Any]]):
    """What people write without packer: read the sample's image files with OpenCV and resize them, in every epoch."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = {}
        for path in map(Path(self.source.root).joinpath, self.source.entry(index).files):
            if path.suffix.lower() in _SUFFIXES:
                image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
                if image.ndim == 3:
                    image = cv2.cvtColor(image[:, :, :3], cv2.COLOR_BGR2RGB)
                sample[path.name] = shrunk(image)
            else:
                path.read_text(errors="replace")
        return sample


def shrunk(image: Any) -> torch.Tensor:
    """What the training wants."""
    return torch.from_numpy(cv2.resize(image, _SIZE, interpolation=cv2.INTER_AREA))


def all_shrunk(sample: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The same as a transform of a data set."""
    return {name: shrunk(image) for name, image in sample.items()}


def one_thread(_: int) -> None:
    """OpenCV's own threads would only fight with the other workers."""
    cv2.setNumThreads(0)


def rate(dataset: Dataset[Any], collate: Any = None) -> float:
    """Samples per second of a shuffled DataLoader, over whole epochs until a few seconds have passed."""
    options = {"batch_size": 16, "num_workers": min(2, usable_cores()), "shuffle": True, "persistent_workers": True}
    loader: DataLoader[Any] = DataLoader(dataset, worker_init_fn=one_thread, collate_fn=collate, **options)
    for _ in loader:  # starts the workers and fills the page cache
        pass
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < _SECONDS:
        for _ in loader:
            pass
        count += len(dataset)  # type: ignore[arg-type]
    return count / (time.perf_counter() - started)


def packer(*words: object) -> None:
    """Run a packer command and show it."""
    print("$ packer", *words, flush=True)
    command = [sys.executable, "-c", "from packer.cli import run; run()", *map(str, words)]
    code = subprocess.run(command, check=False).returncode
    if code:
        sys.exit(code)


def describe(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)}".removeprefix("torch.")
    return repr(value)[:60]


def demonstrate(folder: Path, scratch: Path) -> None:
    """Pack, read, time."""
    kept, small = scratch / "kept.pack", scratch / "small.pack"
    size = f"{_SIZE[0]}x{_SIZE[1]}"
    print(f"\n1. Pack the folder at the size that training shows, {size}; and once more with the files' bytes, exact")
    packer("convert", folder, small, "--resize", size)
    packer("convert", folder, kept)
    packer("verify", kept)
    print("\n2. Read it back:  packer.open(PACK)")
    dataset = open_pack(small)
    print(f"{dataset!r}")
    for name, value in dataset[0].items():
        print(f"   dataset[0][{name!r}]: {describe(value)}")
    batch = next(iter(DataLoader(dataset, batch_size=min(8, len(dataset)))))
    for name, value in batch.items():
        print(f"   batch[{name!r}]: {describe(value) if isinstance(value, torch.Tensor) else f'list of {len(value)}'}")
    print(f"\n3. Speed: shuffled DataLoader, {min(2, usable_cores())} workers, {len(dataset)} samples, in memory")
    source, _ = SourceSpec().open(folder)
    pixels = [field.name for field in dataset.schema if field.kind in ("image", "depth", "mask")]
    before = rate(FolderDataset(source), list)
    rows = {
        "folder, OpenCV, resized in every epoch": before,
        f"pack made with --resize {size}": rate(open_pack(small, pixels)),
        "pack of the same bytes, resized in every epoch": rate(
            open_pack(kept, pixels, output="numpy", transform=all_shrunk), list
        ),
    }
    for name, value in rows.items():
        print(f"   {name:<47} {value:8.0f} samples/s   {value / before:5.1f}x")
    grasps = "grasps" in dataset.schema
    print(
        f"   Kept bytes are exact, and not much faster: {'--preset or ' * grasps}--resize is what makes training fast."
    )
    print("\n4. Do it with your data")
    print(f"   packer convert FOLDER out.pack {'--preset ggcnn' if grasps else '--resize 256'}")
    for line in (_GRASPS if grasps else _PHOTOS).splitlines():
        print(f"   {line}".rstrip())


def main() -> None:
    """With a folder: that one. Without: a synthetic Cornell set."""
    with tempfile.TemporaryDirectory(prefix="packer-demo-") as name:
        scratch = Path(name)
        if len(sys.argv) > 1:
            folder = Path(sys.argv[1])
        else:
            folder = scratch / "cornell"
            print("No folder given: making a synthetic Cornell grasp set")
            packer("synth", "cornell", folder, "--samples", 120, "--seed", 0)
        demonstrate(folder, scratch)


if __name__ == "__main__":
    main()
