"""The sweep of `packer tune` as a picture: the columns stacked over the number of workers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packer.measure import drawing
from packer.measure.setting import LOADERS, OURS
from packer.measure.tune import Plan, Row, recommended

_COLOURS = {"compute": "#009e73", "wait": "#d55e00", "first": "#e69f00", "epoch": "#cc79a7"}
_TOLD = {
    "compute": "compute",
    "wait": "waiting for a batch",
    "first": "until the first batch",
    "epoch": "between epochs",
}


def draw(rows: Sequence[Row], plan: Plan, path: Path) -> None:
    """Write the picture, seconds per epoch; raises MissingPackage, Refused, StorageFailed."""
    drawing.check(path)
    groups = [(loader, found) for loader in LOADERS if (found := [row for row in rows if row.setting.loader == loader])]
    widths = [max(2, len(found)) for _, found in groups]
    figure = drawing.figure(max(6.0, 1.5 + 0.62 * sum(widths)), 4)
    panels = figure.subplots(1, len(groups), squeeze=False, sharey=True, width_ratios=widths)[0]
    for axes, (loader, found) in zip(panels, groups, strict=True):
        _stack(axes, found, plan, recommended(rows))
        axes.set_title(f"packer.{loader}" if loader == OURS else loader, loc="left", fontsize="medium")
        axes.set_xlabel("threads" if loader == OURS else "worker processes")
    panels[0].set_ylabel(f"seconds per epoch of {plan.steps} steps")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    drawing.save(figure, path)


def _stack(axes: Any, rows: Sequence[Row], plan: Plan, best: Row) -> None:
    places = range(len(rows))
    below = [0.0] * len(rows)
    for name, colour in _COLOURS.items():
        heights = [row.columns[name] / plan.epochs for row in rows]
        axes.bar(places, heights, bottom=below, color=colour, width=0.75, label=_TOLD[name])
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set_xticks(places, [str(row.setting.workers) for row in rows])
    for place, row in zip(places, rows, strict=True):
        if row is best:
            axes.annotate(
                *("recommended", (place, below[place])),
                xytext=(place, 0.97),
                textcoords=("data", "axes fraction"),
                ha="center",
                va="top",
                fontsize="small",
                arrowprops={"arrowstyle": "-|>", "color": "0.2"},
            )
    axes.margins(y=0.15)
    drawing.plain(axes)
