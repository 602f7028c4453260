"""Train a small detector on images with boxes: a COCO tree is packed, then batches come with a dict per image.

    python examples/train_detection.py coco coco.pack

The head is CenterNet's, in plain torch: each cell of 8x8 px says which classes have the center of a box there, and
where that box ends. torchvision's detectors take the same batches with `DetectionCollate(first_label=1)`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import packer
from packer.datasets import DetectionCollate
from packer.geometry import BoxRule, Compose, RandomHorizontalFlip, RandomResizedCrop

STRIDE = 8
Target = dict[str, Tensor]


class Detector(nn.Module):
    """uint8 (N, 3, H, W) -> per cell a score for each class, and the four sides of a box in cells."""

    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        channels = (3, width, width * 2, width * 2)
        layers: list[nn.Module] = []
        for into, out in zip(channels, channels[1:], strict=False):
            layers += [nn.Conv2d(into, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Conv2d(width * 2, width * 2, 3, 1, 1), nn.ReLU())
        self.scores = nn.Conv2d(width * 2, classes, 1)
        self.sides = nn.Conv2d(width * 2, 4, 1)
        nn.init.constant_(self.scores.get_parameter("bias"), -4.0)  # few cells have one

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """float (N, classes, H / 8, W / 8) and (N, 4, H / 8, W / 8)."""
        seen = self.body(images.float() / 255 - 0.5)
        return self.scores(seen), functional.softplus(self.sides(seen))


def loss_of(scores: Tensor, sides: Tensor, targets: Sequence[Target]) -> Tensor:
    """Focal loss of the scores, and the distance of the sides where boxes have their centers, each per box."""
    wanted = torch.zeros_like(scores)
    apart = scores.new_zeros(())
    boxes = 0
    for at, target in enumerate(targets):
        box = target["boxes"] / STRIDE
        center = (box[:, :2] + box[:, 2:]) / 2
        x = center[:, 0].long().clamp(0, scores.shape[3] - 1)
        y = center[:, 1].long().clamp(0, scores.shape[2] - 1)
        wanted[at, target["labels"], y, x] = 1
        middle = torch.stack([x, y], 1) + 0.5
        sizes = torch.cat([middle - box[:, :2], box[:, 2:] - middle], 1).clamp(min=0)
        apart = apart + functional.l1_loss(sides[at, :, y, x].T, sizes, reduction="sum")
        boxes += len(box)
    sure = torch.where(wanted > 0, scores.sigmoid(), 1 - scores.sigmoid())
    focal = (functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none") * (1 - sure) ** 2).sum()
    return (focal + apart) / max(1, boxes)


def train(args: argparse.Namespace) -> list[float]:
    """Pack the tree where there is no pack yet, train, and return the mean loss of each epoch."""
    torch.manual_seed(args.seed)
    if not args.pack.exists():
        packer.convert(args.coco, args.pack, kind="coco")
    geometry = Compose(RandomResizedCrop(args.size, scale=(0.6, 1.0)), RandomHorizontalFlip())
    rule = BoxRule(clip=True, least_visible=0.3)  # of which less is in the crop is no box to find
    dataset = packer.open(args.pack, fields=("image", "boxes", "box_labels", "box_crowd"), boxes=rule)
    names = dataset.schema["box_labels"].classes
    if names is None:
        raise SystemExit(f"{args.pack}: its box_labels have no class names")
    loader = packer.Loader(
        dataset,
        args.batch_size,
        shuffle=True,
        seed=args.seed,
        geometry=geometry,
        collate_fn=DetectionCollate(),
        device=args.device,
    )
    model = Detector(len(names)).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    means = []
    for epoch in range(args.epochs):
        loader.set_epoch(epoch)
        losses = []
        for images, targets in loader:
            loss = loss_of(*model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        means.append(torch.stack(losses).mean().item())
        print(f"epoch {epoch}: loss {means[-1]:.3f}")
    return means


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("coco", type=Path, help="folder, tar or zip in COCO's layout")
    parser.add_argument("pack", type=Path, help="is made where it is not there")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=128, help="side of the crops, px")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args(given)


if __name__ == "__main__":
    train(parsed())
