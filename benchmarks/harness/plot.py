"""The figures of a comparison: as bars, one image for all tasks; and speed against what an image takes to store."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

OURS = ("packer", "ycc420", "raw_pixels")
_LINE = 0.045  # of the height of a panel, for a name


def draw(found: dict[str, Any], path: Path) -> None:
    """Write a PNG: a panel per task, median images/s with lowest and highest; needs matplotlib (extra `plot`)."""
    from matplotlib.figure import Figure

    tasks = {name: task["contestants"] for name, task in found["tasks"].items() if task["contestants"]}
    heights = [len(rows) for rows in tasks.values()]
    figure = Figure(figsize=(8, 1.2 * len(tasks) + 0.28 * sum(heights)), layout="constrained")
    panels = figure.subplots(max(1, len(tasks)), 1, squeeze=False, height_ratios=heights or [1])[:, 0]
    for panel, (name, rows) in zip(panels, tasks.items(), strict=False):
        medians = [row["images_per_second"]["median"] for row in rows]
        lowest = [median - min(row["images_per_second"]["all"]) for median, row in zip(medians, rows, strict=True)]
        highest = [max(row["images_per_second"]["all"]) - median for median, row in zip(medians, rows, strict=True)]
        colors = [{"packer": "tab:orange", "limit": "0.6"}.get(row["peer"], "tab:blue") for row in rows]
        panel.barh([row["name"] for row in rows], medians, xerr=(lowest, highest), color=colors)
        panel.invert_yaxis()
        panel.set_title(f"{name}, images/s", loc="left", fontsize="medium")
    machine = found["machine"]
    figure.suptitle(f"{machine['cpu']}, {machine['cores']} cores", fontsize="small")
    figure.savefig(path, dpi=120)


def draw_sizes(found: dict[str, Any], path: Path) -> None:
    """Write a PNG: images/s against the bytes stored for an image, a panel per task; of each peer and what it stores
    the fastest. Nobody is faster with fewer bytes than those on the line.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    tasks = {name: task for name, task in found["tasks"].items() if task["contestants"]}
    figure = Figure(figsize=(8, 0.5 + 4 * len(tasks)), layout="constrained")
    panels = figure.subplots(max(1, len(tasks)), 1, squeeze=False)[:, 0]
    for panel, (name, task) in zip(panels, tasks.items(), strict=False):
        points = _fastest(task)
        highest = max(rate for _, rate, _ in points)
        best = _nobody_beats([(size, rate) for size, rate, _ in points])
        panel.plot(*zip(*best, strict=True), color="tab:orange", linestyle="--", linewidth=1, zorder=0)
        lowest = 0.0
        for size, rate, row in sorted(points, key=lambda point: point[1]):
            color = "0.5" if row["peer"] == "limit" else "tab:orange" if row["peer"] in OURS else "tab:blue"
            panel.plot(size, rate, marker="o", color=color)
            lowest = max(rate, lowest + highest * _LINE)  # names of those that are equally fast stand above each other
            panel.annotate(
                row["name"],
                (size, rate),
                (size * 1.08, lowest),
                fontsize="small",
                verticalalignment="center",
                arrowprops={"arrowstyle": "-", "color": "0.8", "linewidth": 0.6},
            )
        panel.set(xscale="log", xlabel="stored KB an image", ylabel="images/s", ylim=(0, highest * 1.1))
        sizes = [size for size, _, _ in points]
        panel.set_xlim(min(sizes) / 1.3, max(sizes) * 2.2)
        panel.set_xticks(sorted({round(size) for size, _ in best}), minor=False)
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.minorticks_off()
        panel.set_title(name, loc="left", fontsize="medium")
    machine = found["machine"]
    figure.suptitle(f"{machine['cpu']}, {machine['cores']} cores", fontsize="small")
    figure.savefig(path, dpi=120)


def _fastest(task: dict[str, Any]) -> list[tuple[float, float, dict[str, Any]]]:
    """Stored KB an image, images/s and the contestant: of those of a peer that read the same, the fastest."""
    found: dict[tuple[str, float], tuple[float, float, dict[str, Any]]] = {}
    for row in task["contestants"]:
        size, rate = _stored_kb(row, task["set"]), row["images_per_second"]["median"]
        if (row["peer"], size) not in found or rate > found[row["peer"], size][1]:
            found[row["peer"], size] = size, rate, row
    return list(found.values())


def _stored_kb(row: dict[str, Any], images: dict[str, Any]) -> float:
    """Of peers that read the folder itself, its files."""
    stored: float = row["prepared"]["bytes"] or images["bytes"]
    return stored / images["images"] / 1000


def _nobody_beats(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (size, rate) those than which nothing smaller is as fast, the smallest first."""
    found: list[tuple[float, float]] = []
    for size, rate in sorted(points, key=lambda point: (point[0], -point[1])):
        if not found or rate > found[-1][1]:
            found.append((size, rate))
    return found
