"""A stock torch DataLoader: LMDBDataset against a folder read with OpenCV, same images, same workers."""

import os
import resource
import subprocess
import time
from pathlib import Path

import base
import cv2
import torch
from torch.utils.data import DataLoader, Dataset

from packer.datasets.pack_dataset import LMDBDataset


class CvFolder(Dataset):
    """What people write: cv2.imread, BGR to RGB, channels first."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(str(path) for path in folder.rglob("*") if path.is_file())
        classes = sorted({os.path.basename(os.path.dirname(path)) for path in self.paths})
        self.labels = [classes.index(os.path.basename(os.path.dirname(path))) for path in self.paths]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict:
        image = cv2.cvtColor(cv2.imread(self.paths[index]), cv2.COLOR_BGR2RGB)
        return {"image": torch.from_numpy(image).permute(2, 0, 1), "label": self.labels[index]}


def no_threads(_: int) -> None:
    cv2.setNumThreads(0)


def epoch(loader: DataLoader) -> tuple[float, float]:
    """images/s and CPU seconds per 1000 images, worker processes included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
    started, count = time.perf_counter(), 0
    for batch in loader:
        count += len(batch["label"])
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
    used = after[0].ru_utime + after[0].ru_stime - before[0].ru_utime - before[0].ru_stime + after[1] - before[1]
    return count / wall, used / count * 1000


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=4000, workers=2, batch_size=64, rounds=7)
    with base.scratch() as scratch:
        photos = base.photos(args.folder, scratch, args.samples)
        pack = scratch / "photos.pack"
        subprocess.run([*base.PACKER, "convert", str(photos), str(pack), "--to", "lmdb"], check=True)
        options = {"batch_size": args.batch_size, "num_workers": args.workers, "shuffle": True}
        fields = ("image", "label")
        loaders = {
            "cv2 folder": DataLoader(CvFolder(photos), worker_init_fn=no_threads, **options),
            "packer": DataLoader(LMDBDataset(pack, fields), **options),
            "packer, decoder=opencv": DataLoader(LMDBDataset(pack, fields, decoder="opencv"), **options),
        }
        used: dict[str, list[float]] = {name: [] for name in loaders}

        def run(name: str) -> float:
            rate, cpu = epoch(loaders[name])
            used[name].append(cpu)
            return rate

        found = base.interleaved({name: lambda name=name: run(name) for name in loaders}, args.rounds)
    rows = {
        name: f"{base.spread(values, 'images/s', 0)}, {sorted(used[name])[len(used[name]) // 2]:.2f} CPU s per 1000"
        for name, values in found.items()
    }
    rows["packer / cv2 folder"] = f"{base.ratio(found, 'packer', 'cv2 folder'):.2f}  (wanted: >= 1.4)"
    title = f"DataLoader, {args.workers} workers, batches of {args.batch_size}"
    base.report(title, rows, {"images_per_second": found, "cpu_seconds_per_1000": used}, args)


if __name__ == "__main__":
    main()
