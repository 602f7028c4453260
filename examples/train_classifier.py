"""Train a small ResNet on a pack of labeled photos, and say how often it is right and how long it waits for data.

    packer synth folder photos --samples 1000
    packer convert photos photos.pack --resize 80
    python examples/train_classifier.py photos.pack

Any folder with a folder per class is packed the same way. With --checkpoint FILE the run can be stopped at any batch:
the same command goes on with the batch that comes next.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import random_split

import packer
from packer.geometry import CenterCrop, Compose, RandomHorizontalFlip, RandomResizedCrop, Resize
from packer.loading import Loader

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in range(2))
        self.around = nn.Identity() if stride == 1 == out // channels else nn.Conv2d(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """float (N, channels, H, W) -> (N, out, H / stride, W / stride)."""
        y = functional.relu(self.norms[0](self.one(x)))
        return functional.relu(self.norms[1](self.two(y)) + self.around(x))


def resnet(classes: int, width: int = 16) -> nn.Sequential:
    """A stem and four blocks, each of half the size and twice the channels of the one before."""
    stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    blocks = [Block(width << at, width << (at + 1), 2) for at in range(3)]
    last = width << 3
    return nn.Sequential(
        stem, Block(width, width, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)
    )


def loaders(args: argparse.Namespace) -> tuple[Loader, Loader, int]:
    """Training and validation (a fifth of the samples), and the number of classes."""
    dataset = packer.open(args.pack, fields=("image", "label"))
    train, val = random_split(dataset, [0.8, 0.2], generator=torch.Generator().manual_seed(args.seed))
    how: dict[str, Any] = {"device": args.device, "normalize": (MEAN, STD)}
    crops = Compose(RandomResizedCrop(args.size, scale=(0.35, 1.0)), RandomHorizontalFlip())
    whole = Compose(Resize(args.size), CenterCrop(args.size))
    return (
        Loader(train, args.batch_size, shuffle=True, drop_last=True, seed=args.seed, geometry=crops, **how),
        Loader(val, args.batch_size, geometry=whole, **how),
        len(dataset.classes),
    )


class Trainer:
    """The model, its optimizer, and what a checkpoint holds."""

    def __init__(self, args: argparse.Namespace, train: Loader, classes: int) -> None:
        torch.manual_seed(args.seed)
        self.args = args
        self.train = train
        self.model = resnet(classes).to(args.device, memory_format=torch.channels_last)  # as Loader's images are
        self.step: Any = torch.compile(self.model) if args.compile else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, weight_decay=0.05)
        if args.checkpoint is not None and args.checkpoint.exists():
            state = torch.load(args.checkpoint, map_location=args.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            train.load_state_dict(state["loader"])

    def save(self) -> None:
        """Under a name that nobody has, then in one step to its place."""
        if self.args.checkpoint is not None:
            parts = {"model": self.model, "optimizer": self.optimizer, "loader": self.train}
            with tempfile.NamedTemporaryFile(dir=self.args.checkpoint.parent, delete=False) as side:
                torch.save({name: part.state_dict() for name, part in parts.items()}, side)
            Path(side.name).replace(self.args.checkpoint)

    def epoch(self) -> tuple[float, float]:
        """One pass: mean loss, and the share of its time that was spent waiting for batches."""
        self.model.train()
        losses, waited, began = [], 0.0, time.perf_counter()
        batches = iter(self.train)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            waited += time.perf_counter() - asked
            if batch is None:
                return torch.stack(losses).mean().item(), waited / (time.perf_counter() - began)
            loss = functional.cross_entropy(self.step(batch["image"]), batch["label"], label_smoothing=0.1)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
            if self.args.save_every and len(losses) % self.args.save_every == 0:
                self.save()

    @torch.no_grad()
    def accuracy(self, val: Loader) -> float:
        """The share of samples that are told right."""
        self.model.eval()
        right = [(self.model(batch["image"]).argmax(1) == batch["label"]).float() for batch in val]
        return torch.cat(right).mean().item()


def main(given: Sequence[str] | None = None) -> None:
    """Train, and print a line per epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, help="side of the crops, px")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--checkpoint", type=Path, help="go on from this file, and save there after each epoch")
    parser.add_argument("--save-every", type=int, default=0, metavar="STEPS", help="save within an epoch, too")
    args = parser.parse_args(given)
    train, val, classes = loaders(args)
    trainer = Trainer(args, train, classes)
    for epoch in range(train.epoch, args.epochs):
        train.set_epoch(epoch)
        loss, waiting = trainer.epoch()
        trainer.save()
        print(f"epoch {epoch}: loss {loss:.3f}, right {trainer.accuracy(val):.1%}, waited for data {waiting:.1%}")


if __name__ == "__main__":
    main()
