"""Train a small U-Net on images with masks: the tree is packed, then image and mask move through one geometry.

    packer synth pairs pairs --samples 400 --classes 3
    python examples/train_segmentation.py pairs pairs.pack

`packer convert` reads any layout of docs/pack/sources/pairs.md in the same way. If the pack exists, the example does
not read the images. The classes are the values in the masks. 255 is void, which loss and score ignore, unless the
masks contain only 0 and 255.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, random_split

import packer
from packer.geometry import CenterCrop, Compose, RandomHorizontalFlip, RandomResizedCrop, Resize

VOID = 255
VALUES = 256  # of a mask of 8 bit


def block(channels: int, out: int) -> nn.Sequential:
    """Two convolutions."""
    layers: list[nn.Module] = []
    for into in (channels, out):
        layers += [nn.Conv2d(into, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """uint8 (N, 3, H, W) -> a score for each class and pixel; H and W are multiples of 8."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        widths = [width << level for level in range(4)]
        self.down = nn.ModuleList(block(*pair) for pair in zip([3, *widths], widths, strict=False))
        pairs = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.larger = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, 2) for wide, narrow in pairs)
        self.up = nn.ModuleList(block(2 * narrow, narrow) for _, narrow in pairs)
        self.scores = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """float (N, classes, H, W)."""
        x = images.float() / 255 - 0.5
        kept: list[Tensor] = []
        for step in self.down:
            x = step(x if not kept else functional.max_pool2d(x, 2))
            kept.append(x)
        for larger, step, before in zip(self.larger, self.up, kept[-2::-1], strict=True):
            x = step(torch.cat([larger(x), before], 1))
        scores: Tensor = self.scores(x)
        return scores


class Classes:
    """Which class a value of a mask is, and how many pixels of each there are in the first images."""

    def __init__(self, dataset: Dataset[Any], looked_at: int = 200) -> None:
        counts = torch.zeros(VALUES, dtype=torch.int64)
        for number in range(min(looked_at, len(dataset))):  # type: ignore[arg-type]
            mask = dataset[number]["mask"]
            if mask.dtype != torch.uint8:
                raise SystemExit("expected masks of 8 bit: those of 16 hold ids of objects, and no classes")
            counts += torch.bincount(mask.flatten(), minlength=VALUES)
        values = counts.nonzero().flatten()
        if values.tolist() != [0, VOID]:
            values = values[values != VOID]
        self.count = len(values)
        self.table = torch.full((VALUES,), VOID)
        self.table[values] = torch.arange(self.count)
        self.weights = (counts[values] / counts[values].sum()).rsqrt()  # things are small, tables large

    def of(self, mask: Tensor) -> Tensor:
        """int64 (N, H, W): the classes of a mask, 255 for void and for values that were not seen."""
        return self.table.to(mask.device)[mask.long()]


def datasets(args: argparse.Namespace) -> tuple[Dataset[Any], Dataset[Any]]:
    """Training and validation: the pack's splits of these names, else a fifth of the samples is held out."""
    if not args.pack.exists():
        packer.convert(args.source, args.pack)
    whole = packer.open(args.pack, fields=("image", "mask"))
    if {"train", "val"} <= set(whole.splits):
        return whole.with_(split="train"), whole.with_(split="val")
    train, val = random_split(whole, [0.8, 0.2], generator=torch.Generator().manual_seed(args.seed))
    return train, val


@torch.no_grad()
def iou(model: nn.Module, loader: packer.Loader, classes: Classes) -> float:
    """Intersection over union, the mean over the classes that there are."""
    model.eval()
    pairs = torch.zeros(classes.count, classes.count, dtype=torch.int64)  # true class, found class
    for batch in loader:
        found, true = model(batch["image"]).argmax(1).cpu(), classes.of(batch["mask"]).cpu()
        is_known = true != VOID
        numbers = true[is_known] * classes.count + found[is_known]
        pairs += torch.bincount(numbers, minlength=classes.count**2).reshape(pairs.shape)
    model.train()
    both, either = pairs.diagonal(), pairs.sum(0) + pairs.sum(1) - pairs.diagonal()
    return (both[either > 0] / either[either > 0]).mean().item()


@torch.no_grad()
def draw(model: nn.Module, loader: packer.Loader, classes: Classes, file: Path) -> None:
    """A PNG of the first batch: a row of images, one of their masks, one of what the network finds."""
    model.eval()
    batch = next(iter(loader))
    colors = np.random.default_rng(1).integers(64, 256, (VALUES, 3)).astype(np.uint8)
    colors[0], colors[VOID] = 0, 128
    images = batch["image"].permute(0, 2, 3, 1).cpu().numpy()
    true, found = (colors[each.cpu().numpy()] for each in (classes.of(batch["mask"]), model(batch["image"]).argmax(1)))
    rows = [np.concatenate(list(row), axis=1) for row in (images, true, found)]
    cv2.imwrite(str(file), cv2.cvtColor(np.concatenate(rows), cv2.COLOR_RGB2BGR))


def train(args: argparse.Namespace) -> list[tuple[float, float]]:
    """Train, and return the mean loss and the IoU of each epoch."""
    torch.manual_seed(args.seed)
    training, validation = datasets(args)
    classes = Classes(training)
    crops = Compose(RandomResizedCrop(args.size, scale=(0.4, 1.0)), RandomHorizontalFlip())
    whole = Compose(Resize(args.size), CenterCrop(args.size))
    loader = packer.Loader(
        training, args.batch_size, shuffle=True, drop_last=True, seed=args.seed, geometry=crops, device=args.device
    )
    held_out = packer.Loader(validation, args.batch_size, geometry=whole, device=args.device)
    model = UNet(classes.count, args.width).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=args.epochs * len(loader))
    weights = classes.weights.to(args.device)
    history = []
    for epoch in range(args.epochs):
        loader.set_epoch(epoch)
        losses = []
        for batch in loader:
            scores, wanted = model(batch["image"]), classes.of(batch["mask"])
            loss = functional.cross_entropy(scores, wanted, weights, ignore_index=VOID)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        history.append((torch.stack(losses).mean().item(), iou(model, held_out, classes)))
        print(f"epoch {epoch}: loss {history[-1][0]:.3f}, IoU {history[-1][1]:.1%} of {classes.count} classes")
    if args.image is not None:
        draw(model, held_out, classes, args.image)
    return history


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder, tar or zip of images and masks")
    parser.add_argument("pack", type=Path, help="is made where it is not there")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=128, help="side of the crops, px, a multiple of 8")
    parser.add_argument(
        "--width", type=int, default=16, help="channels of the first level; each further has twice as many"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--image", type=Path, metavar="FILE", help="draw images, masks and what is found: out.png")
    return parser.parse_args(given)


if __name__ == "__main__":
    train(parsed())
