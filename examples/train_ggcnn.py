"""Train a small grasp network (of GG-CNN's size) on a pack, and say how many of its grasps are right.

    packer synth cornell scenes --samples 240
    packer convert scenes scenes.pack --preset ggcnn
    python examples/train_ggcnn.py scenes.pack

With --checkpoint FILE the run can be stopped at any batch: the same command goes on with the batch that comes next.
"""

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from packer import Loader
from packer.grasp import Fold, GraspDataset, as_input, best_grasp, is_correct_grasp


class GraspNet(nn.Module):
    """Quality (before its sigmoid), cos, sin and width at every pixel, from depth and color."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()

        def block(*shape: int, **how: int) -> nn.Sequential:
            convolution = nn.Conv2d(*shape, **how, bias=False)  # type: ignore[arg-type]
            return nn.Sequential(convolution, nn.BatchNorm2d(shape[1]), nn.ReLU(inplace=True))

        self.down = nn.Sequential(
            block(channels, 16, 9, stride=3, padding=4),
            block(16, 32, 5, stride=2, padding=2),
            block(32, 32, 3, padding=2, dilation=2),
            block(32, 32, 3, padding=4, dilation=4),
            block(32, 32, 3, padding=8, dilation=8),
        )
        self.up = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), block(32, 16, 3, padding=1))
        self.heads = nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """float (N, C, S, S) -> (N, 4, S, S)."""
        found = self.heads(self.up(self.down(x)))
        return functional.interpolate(found, size=x.shape[-2:], mode="bilinear")


def loss_of(found: Tensor, maps: Tensor) -> Tensor:
    """Quality everywhere; cos, sin and width where there is a grasp."""
    quality, others = maps[:, :1], maps[:, 1:]
    weight = torch.tensor(10.0, device=maps.device)  # grasps cover a hundredth of an image
    on_quality = functional.binary_cross_entropy_with_logits(found[:, :1], quality, pos_weight=weight)
    off = (found[:, 1:] - others).square() * quality
    return on_quality + off.sum() / quality.sum().clamp(min=1)


class Training:
    """A network, its optimizer and its loader, on the GPU where there is one."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        how: dict[str, Any] = {"output_size": args.size, "pixels": "uint8"}
        train, val = (Fold(0, part=part, by=args.split) for part in ("train", "val"))
        self.items = GraspDataset(args.pack, split=train, **how)
        self.held_out = GraspDataset(args.pack, split=val, random_rotate=False, random_zoom=False, **how)
        self.loader = Loader(
            self.items, args.batch_size, shuffle=True, seed=args.seed, drop_last=True, num_workers=args.workers
        )
        self.net = GraspNet().to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=args.lr)
        self.scaler = torch.amp.GradScaler(enabled=self.device.type == "cuda")

    def seen(self, x: Any) -> Tensor:
        """The network's output for a batch; the image's bytes become floats on the device."""
        on_device = [part.to(self.device, non_blocking=True) for part in x]
        on_gpu = self.device.type == "cuda"
        with torch.autocast("cuda", dtype=torch.float16) if on_gpu else nullcontext():
            found: Tensor = self.net(as_input(on_device).contiguous(memory_format=torch.channels_last))
        return found.float()

    def step(self, x: Any, maps: Sequence[Tensor]) -> float:
        """One step of the optimizer; returns the loss."""
        loss = loss_of(self.seen(x), torch.cat([each.to(self.device) for each in maps], dim=1))
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return float(loss.detach())

    @torch.no_grad()
    def success(self) -> float:
        """Share of held-out images whose best grasp is right: 25 % overlap, 30 degrees."""
        self.net.eval()
        right = 0
        for x, _, index, rot, zoom in Loader(self.held_out, 8):
            found = self.seen(x).cpu()
            found[:, 0].sigmoid_()
            for maps, *item in zip(found, index, rot, zoom, strict=True):
                right += is_correct_grasp(best_grasp(*maps), self.held_out.get_gtbb(*item))
        self.net.train()
        return right / max(len(self.held_out), 1)

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        parts = (self.net, self.optimizer, self.scaler, self.loader)
        return dict(zip(("net", "optimizer", "scaler", "loader"), (part.state_dict() for part in parts), strict=True))

    def load(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name, part in vars(self).items():
            if name in state:
                part.load_state_dict(state[name])


def train(args: argparse.Namespace) -> None:
    """All epochs that are left; a line per epoch."""
    training = Training(args)
    if args.checkpoint and args.checkpoint.exists():
        training.load(torch.load(args.checkpoint, weights_only=True))
        print(f"goes on in epoch {training.loader.epoch}")
    steps, started = 0, time.perf_counter()
    for epoch in range(training.loader.epoch, args.epochs):
        losses = []
        for x, maps, index, _, _ in training.loader:
            losses.append(training.step(x, maps))
            steps += 1
            if args.log:
                with args.log.open("a") as log:
                    log.write(json.dumps({"epoch": epoch, "loss": losses[-1], "items": index.tolist()}) + "\n")
            if steps == args.stop_after:
                torch.save(training.state(), args.checkpoint)
                print(f"stopped after {steps} batches")
                return
        if args.checkpoint:
            torch.save(training.state(), args.checkpoint)
        rate = steps * args.batch_size / (time.perf_counter() - started)
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}, {rate:.0f} items/s")
    print(f"success rate {100 * training.success():.1f} % of {len(training.held_out)} images that it never saw")


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--size", type=int, default=224, help="px of the network's input, default 224")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0, help="processes that make batches, in place of threads")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", choices=("image", "object"), default="image", help="what the fifth held out is of")
    parser.add_argument("--checkpoint", type=Path, help="written after every epoch, and taken up where it is there")
    parser.add_argument("--stop-after", type=int, default=0, help="stop after so many batches, for trying it out")
    parser.add_argument("--log", type=Path, help="append a line of JSON per batch: its loss and its items")
    args = parser.parse_args(words)
    if args.stop_after and not args.checkpoint:
        parser.error("--stop-after needs a --checkpoint to go on from")
    return args


if __name__ == "__main__":
    train(parsed())
