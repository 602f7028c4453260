"""Calls of the public face as a user writes them: mypy checks this file, nothing runs it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Subset

import packer
from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop
from packer.grasp import Fold, NamedSplit, SliceSplit
from packer.schema import Field
from packer.system.progress_callback import Progress


def show(now: Progress) -> None:
    print(f"{now.samples} of {now.total}, {now.bytes} bytes")


def in_lists(samples: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
    return [sample["image"] for sample in samples]


def converts() -> int:
    summary = packer.convert(
        "photos",
        "photos.pack",
        to="lmdb",
        resize=(256, 256),
        codecs={"image": "jpeg:90"},
        splits={"train": 0.9, "val": 0.1},
        sidecars={"depth": "_d.tiff:depth"},
        on_error="skip",
        progress=show,
        on_note=print,
    )
    packer.convert(
        "boxes.csv", "boxes.pack", label_column="class", group_by="filename", key_column="id", missing="skip"
    )
    packer.convert("DUTS", "duts.pack", kind="pairs", layout="duts", missing="skip")
    packer.convert("photos", "pairs.pack", roles={"image": "a/{stem}:image", "mask": "b/{stem}.png:mask"})
    packer.convert("camvid", "camvid.pack", mask_colors={"mask": "colors.txt"}, unknown_colors="void")
    packer.convert("coco", "coco.pack", annotations="val.json", task="instances,captions", labels_orientation="stored")
    packer.convert(packer.sources.Coco("coco", annotations="val.json", task="instances"), "coco.pack", resize=256)
    found = packer.verify("photos.pack", level="full", source="photos")
    written = packer.extract("photos.pack", "photos-again", skip_bad=True, progress=show)
    return summary.samples + len(found.problems) + len(found.not_compared.get("split", "")) + written.files


class Pairs(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(3, 8, 8, dtype=torch.uint8), index


def converts_objects() -> None:
    label = Field("label", "number", "number", dtype="int64", shape=(), classes=("cat", "dog"))
    packer.convert(Pairs(), "pairs.pack", fields={"image": "image", "label": label}, fingerprint="v1", progress=True)
    packer.convert([{"image": b"", "id": "a"}], "dicts.pack", fields=["image"], key="id", axes="hwc")
    packer.convert(({"x": number} for number in range(3)), "numbers.pack", length=3, key=str)
    packer.convert(Subset(Pairs(), [1]), "one.pack", fields={"image": "image", "label": "number"}, key=["b"])


def loads() -> None:
    augment = Compose(RandomResizedCrop(224), RandomHorizontalFlip())
    with packer.open("photos.pack", fields=("image", "label"), output="torch", verify="first", dct="fast") as dataset:
        with packer.Loader(dataset, 32, shuffle=True, geometry=augment, num_workers=2) as loader:
            for batch in packer.monitor(loader):
                print(batch["image"].shape)
        packer.Loader(Subset(dataset, [0, 1]), 2, collate_fn=in_lists, ragged="list")
        packer.Loader(packer.Mix([dataset, Subset(dataset, [0])], [0.7, 0.3], epoch="longest"), 10, steps_per_epoch=5)
        packer.Loader(dataset, 4, weights=packer.loading.balanced(dataset.targets))
        buckets = packer.loading.SizeBuckets(dataset, 4, most_padding=0.2, sizes=[(1, 2)])
        packer.Loader(dataset, batch_sampler=buckets, ragged="pad")
        packer.Loader(dataset, batch_sampler=[[0, 1], [2]])
        val = dataset.with_(split="val", geometry=None, as_tuple=("image", "label"))
        print(len(val[0:10]), val.splits)
    own: packer.datasets.LMDBDataset
    with packer.datasets.LMDBDataset("photos.pack", as_tuple=("image", "label")) as own:
        for images, labels in packer.loading.CUDAPrefetcher(DataLoader(own, 4), "cpu", channels_last=True):
            print(images, labels)
    grasps = packer.grasp.GraspDataset(
        "cornell.pack", style="grconvnet", split=Fold(0), pixels="uint8", decoder="opencv"
    )
    cut = SliceSplit(0.0, 0.9, of=NamedSplit("seen.obj", missing="skip"))
    packer.grasp.GraspDataset("anything.pack", split=cut, include_depth=False, items="label", exact="fork")
    with packer.loading.BackgroundIterator(packer.loading.DataLoaderX(grasps, batch_size=4), 2) as items:
        print(len(items))


def feeds_dali() -> None:
    source = packer.dali.source("photos.pack", 64, fields=("image", "label"), last_batch="drop", shuffle=True, rank=0)
    print(len(source), source.samples, source.dtypes, source.arguments()["num_outputs"])


def refused() -> None:
    """What a type checker must find: an ignore that is not needed is an error."""
    packer.open("photos.pack", output="tensor")  # type: ignore[arg-type]
    packer.open("photos.pack", decode="auto")  # type: ignore[call-arg]
    packer.open("photos.pack", boxes=0.25)  # type: ignore[arg-type]
    packer.open("photos.pack").with_(verify="first")  # type: ignore[call-arg]
    packer.open("photos.pack").with_(output="tensor")  # type: ignore[arg-type]
    packer.grasp.GraspDataset("cornell.pack", items="object")  # type: ignore[arg-type]
    packer.grasp.GraspDataset("cornell.pack", exact="ggcnn")  # type: ignore[arg-type]
    packer.verify("photos.pack", level="deep")  # type: ignore[arg-type]
    packer.convert("photos", "photos.pack", exif="turn")  # type: ignore[arg-type]
    packer.convert([{"x": 1}], "photos.pack", progress="bar")  # type: ignore[arg-type]
    packer.convert([{"x": 1}], "photos.pack", axes="cwh")  # type: ignore[arg-type]
    packer.convert("cornell", "cornell.pack", depth_from="png")  # type: ignore[arg-type]
    packer.sources.Coco("coco", annotations=1)  # type: ignore[arg-type]
    packer.convert("coco", "coco.pack", annotations=1)  # type: ignore[arg-type]
    packer.convert("photos", "photos.pack", color="red")  # type: ignore[call-arg]
    packer.Loader(packer.open("photos.pack"), workers=2)  # type: ignore[arg-type]
    packer.dali.source("photos.pack", 64, last_batch="pad")  # type: ignore[arg-type]
    packer.monitor([], clock=None)  # type: ignore[call-arg]
    packer.convrt("photos", "photos.pack")  # type: ignore[attr-defined]
