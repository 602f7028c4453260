"""The figures of `packer bench` as a picture: the best of each source as bars, and all of them over workers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packer.files.text import plot_label
from packer.measure import drawing
from packer.measure.bench import Line
from packer.measure.bench_report import best
from packer.measure.setting import STOCK


def draw(lines: Sequence[Line], path: Path) -> None:
    """Write the picture; medians with lowest and highest. Raises MissingPackage, Refused, StorageFailed."""
    drawing.check(path)
    names = list(dict.fromkeys(line.subject.name for line in lines))
    colours = {name: drawing.PALETTE[at % len(drawing.PALETTE)] for at, name in enumerate(names)}
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.subject.name, line.setting.loader), []).append(line)
    unit = "images/s" if all(line.pictures == 1 for line in lines) else "samples/s"
    figure = drawing.figure(10, 2.4 + 0.45 * len(groups))
    bars, curves = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _bars(bars, {key: best(found) for key, found in groups.items()}, colours)
    _curves(curves, groups, colours)
    bars.set_xlabel(unit)
    curves.set_ylabel(unit)
    drawing.save(figure, path)


def _bars(axes: Any, found: dict[tuple[str, str], Line], colours: dict[str, str]) -> None:
    labels = [f"{plot_label(name)}\n{line.setting.short}" for (name, _), line in found.items()]
    for at, ((name, loader), line) in enumerate(found.items()):
        low, high = line.rate - min(line.rates), max(line.rates) - line.rate
        stock = loader == STOCK
        axes.barh(
            *(at, line.rate),
            xerr=([low], [high]),
            color="white" if stock else colours[name],
            edgecolor=colours[name],
            hatch="///" if stock else None,
            error_kw={"ecolor": "0.25", "capsize": 3, "linewidth": 1},
        )
        axes.annotate(
            f"{line.rate:.0f}", (max(line.rates), at), (6, 0), textcoords="offset points", va="center", fontsize="small"
        )
    axes.set_yticks(range(len(labels)), labels, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_xlim(left=0)
    axes.set_title("at its best", loc="left", fontsize="medium")
    drawing.plain(axes, grid="x")


def _curves(axes: Any, groups: dict[tuple[str, str], list[Line]], colours: dict[str, str]) -> None:
    for (name, loader), lines in groups.items():
        ordered = sorted(lines, key=lambda line: line.setting.workers)
        workers = [line.setting.workers for line in ordered]
        stock = loader == STOCK
        how = {"color": colours[name], "linestyle": "--" if stock else "-"}
        face = "white" if stock else colours[name]
        axes.plot(
            workers, [line.rate for line in ordered], marker="o", mfc=face, label=f"{plot_label(name)}, {loader}", **how
        )
        lowest, highest = [min(line.rates) for line in ordered], [max(line.rates) for line in ordered]
        axes.fill_between(workers, lowest, highest, color=colours[name], alpha=0.12, linewidth=0)
    axes.set_xticks(sorted({line.setting.workers for lines in groups.values() for line in lines}))
    axes.set_xlabel("worker processes, or threads of Loader")
    axes.set_ylim(bottom=0)
    axes.set_title("over workers", loc="left", fontsize="medium")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.18), ncols=2, fontsize="small", frameon=False)
    drawing.plain(axes)
