"""GG-CNN's and GR-ConvNet's own training scripts on a pack: the patches of examples/patches applied, one epoch each.

Takes checkouts of dougsm/ggcnn and skumra/robotic-grasping: --ggcnn DIR --grconvnet DIR, either or both; they stay as
they are, copies are patched. Needs what the scripts import: torchsummary, tensorboardX, scikit-image, imageio,
matplotlib. Cornell is synthetic unless --cornell names a real one. Trains with the scripts' default arguments but for
one epoch of --batches batches, once from the folder through the project's own loader and once from the pack, then
evaluates what was trained; both ran in copies that know NumPy's current names and work without a GPU.
"""

import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import base

PATCHES = Path(__file__).resolve().parent.parent / "examples/patches"


@dataclass(frozen=True)
class Repository:
    """What its scripts are called, and what they need beside their defaults."""

    patch: str
    train: str
    evaluate: str
    preset: str
    train_words: tuple[str, ...] = ()
    evaluate_words: tuple[str, ...] = ()


REPOSITORIES = {
    "ggcnn": Repository("ggcnn.patch", "train_ggcnn.py", "eval_ggcnn.py", "ggcnn", ("--val-batches", "8")),
    "grconvnet": Repository("grconvnet.patch", "train_network.py", "evaluate.py", "grconvnet", ("--cpu",), ("--cpu",)),
}


def patched(checkout: Path, target: Path, patch: Path, *, loader: bool) -> Path:
    """A copy with the patch applied; loader: the data set's part of it, too."""
    shutil.copytree(checkout, target, ignore=shutil.ignore_patterns(".git", "trained-models"))
    subprocess.run(
        ["git", "init", "--quiet"], cwd=target, check=True
    )  # else git apply takes an outer repository's root
    leave = [] if loader else ["--exclude=utils/data/__init__.py"]
    subprocess.run(["git", "apply", *leave, str(patch)], cwd=target, check=True)
    return target


def run(words: list[str], folder: Path) -> tuple[list[tuple[float, str]], int]:
    """Every line that the program prints with the second at which it came, and its exit code."""
    lines: list[tuple[float, str]] = []
    program = [sys.executable, "-u", *words]
    with subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            lines.append((time.perf_counter(), line.rstrip()))
    return lines, process.returncode


def at(lines: list[tuple[float, str]], text: str) -> float | None:
    """When the first line with that text came."""
    return next((moment for moment, line in lines if text in line), None)


def trained(repository: Repository, folder: Path, data: Path, args: Any) -> dict[str, Any]:
    """One epoch: batches a second, and what validation said; `failed`: the last line where the script did not end."""
    words = [repository.train, "--dataset", "cornell", "--dataset-path", str(data), "--epochs", "1"]
    words += ["--batches-per-epoch", str(args.batches), "--num-workers", str(args.workers), *repository.train_words]
    lines, code = run(words, folder)
    begun, ended = at(lines, "Beginning Epoch"), at(lines, "Validating")
    found: dict[str, Any] = {"failed": None if code == 0 else lines[-1][1]}
    if begun is not None and ended is not None:
        found["batches_per_second"] = args.batches / (ended - begun)
    results = [match[0] for _, line in lines if (match := re.search(r"\d+/\d+ = [\d.]+", line))]
    return {**found, "validated": results[-1] if results else None}


def evaluated(repository: Repository, folder: Path, data: Path) -> str:
    """What the evaluation script says of the network that was just trained."""
    networks = sorted(path for path in folder.rglob("epoch_00_iou_*") if not path.name.endswith(".pt"))
    words = [repository.evaluate, "--network", str(networks[0]), "--dataset", "cornell", "--dataset-path", str(data)]
    lines, code = run([*words, "--num-workers", "1", "--iou-eval", "--augment", *repository.evaluate_words], folder)
    results = [line.partition("IOU Results: ")[2] for _, line in lines if "IOU Results" in line]
    return results[-1] if results and code == 0 else f"failed: {lines[-1][1]}"


def main() -> None:
    args = base.arguments(
        __doc__ or "", ggcnn=None, grconvnet=None, cornell=None, samples=40, batches=20, workers=2, rounds=1
    )
    if args.ggcnn is None and args.grconvnet is None:
        sys.exit("expected --ggcnn DIR or --grconvnet DIR, a checkout")
    rows, figures = {}, {}
    with base.scratch() as scratch:
        cornell = args.cornell
        if cornell is None:
            cornell = scratch / "cornell"
            synth = [*base.PACKER, "synth", "cornell", str(cornell), "--samples", str(args.samples)]
            subprocess.run(synth, check=True, stdout=subprocess.DEVNULL)
        for name, repository in REPOSITORIES.items():
            checkout = getattr(args, name)
            if checkout is None:
                continue
            pack = scratch / f"{name}.pack"
            convert = [*base.PACKER, "convert", str(cornell), str(pack), "--preset", repository.preset]
            subprocess.run(convert, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            patch = PATCHES / repository.patch
            own = patched(checkout, scratch / f"{name}-own", patch, loader=False)
            packed = patched(checkout, scratch / f"{name}-packed", patch, loader=True)
            found: dict[str, list[dict[str, Any]]] = {"folder": [], "pack": []}
            for _ in range(args.rounds):
                found["folder"].append(trained(repository, own, cornell, args))
                found["pack"].append(trained(repository, packed, pack, args))
            score = evaluated(repository, packed, pack)
            figures[name] = {**found, "evaluated": score}
            for what, epochs in found.items():
                rates = [epoch["batches_per_second"] for epoch in epochs if "batches_per_second" in epoch]
                end = f"validation {epochs[-1]['validated']}"
                if epochs[-1]["failed"] is not None:
                    end = f"failed: {epochs[-1]['failed']}"
                rows[f"{name}, {what}"] = f"{base.spread(rates, 'batches/s')}, {end}" if rates else end
            rows[f"{name}, evaluated"] = score
    base.report(f"one epoch of {args.batches} batches, {args.workers} workers", rows, figures, args)


if __name__ == "__main__":
    main()
