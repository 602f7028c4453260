"""The figures of a comparison as bars, one picture for all tasks."""

from pathlib import Path
from typing import Any


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
        colours = [{"packer": "tab:orange", "limit": "0.6"}.get(row["peer"], "tab:blue") for row in rows]
        panel.barh([row["name"] for row in rows], medians, xerr=(lowest, highest), color=colours)
        panel.invert_yaxis()
        panel.set_title(f"{name}, images/s", loc="left", fontsize="medium")
    machine = found["machine"]
    figure.suptitle(f"{machine['cpu']}, {machine['cores']} cores", fontsize="small")
    figure.savefig(path, dpi=120)
