"""Plotting: the plots of bench and tune, and what all plots share. matplotlib is optional."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packer.errors import InvalidRequest
from packer.files.atomic_save import save as save_file
from packer.files.terminal_output import plot_label
from packer.inspect import palette
from packer.inspect.palette import as_hex
from packer.registry import check_installed, import_or_explain
from packer.tools.bench import BenchRow, best
from packer.tools.tune import SweepPlan, TuneRow, recommended
from packer.tools.workload import LOADERS, OUR_WORKERS, OURS, STOCK

BLUE, ORANGE, GRAY = "#3274a1", "#e1812c", "#8c8c8c"
PALETTE = tuple(
    as_hex(colour)
    for colour in (
        *(palette.BLUE, palette.ORANGE, palette.GREEN, palette.PURPLE),
        *(palette.VERMILION, palette.SKY, palette.YELLOW, palette.BLACK),
    )
)
_DPI = 120
_SUFFIXES = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raise MissingPackage where matplotlib is absent, InvalidRequest for a file that it cannot write: before any
    work.
    """
    check_installed("matplotlib", "--plot")
    if path.suffix.lower() not in _SUFFIXES:
        raise InvalidRequest(f"{path}: cannot draw into it; expected a name that ends in {', '.join(_SUFFIXES)}")


def new_figure(width: float, height: float) -> Any:
    """A matplotlib Figure of that size in inches, of no window and no global state."""
    module: Any = import_or_explain("matplotlib.figure", "--plot")
    return module.Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any, *, grid: str = "y") -> None:
    """Axes with a light grid behind and no frame."""
    axes.grid(axis=grid, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save(drawn: Any, path: Path) -> None:
    """Write the file, replacing it; raises as `files.work_folder.save` does."""
    data = io.BytesIO()
    drawn.savefig(data, dpi=_DPI, format=path.suffix[1:].lower())
    save_file(path, data.getvalue())


# ---- bench: the best of each source as bars, and all of them over workers


def draw_bench(lines: Sequence[BenchRow], path: Path) -> None:
    """Write the picture; medians with lowest and highest. Raises MissingPackage, InvalidRequest, StorageError."""
    check(path)
    names = list(dict.fromkeys(line.subject.name for line in lines))
    colours = {name: PALETTE[at % len(PALETTE)] for at, name in enumerate(names)}
    groups: dict[tuple[str, str], list[BenchRow]] = {}
    for line in lines:
        groups.setdefault((line.subject.name, line.setting.loader), []).append(line)
    unit = "images/s" if all(line.pictures == 1 for line in lines) else "samples/s"
    figure = new_figure(10, 2.4 + 0.45 * len(groups))
    bars, curves = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _bars(bars, {key: best(found) for key, found in groups.items()}, colours)
    _curves(curves, groups, colours)
    bars.set_xlabel(unit)
    curves.set_ylabel(unit)
    save(figure, path)


def _bars(axes: Any, found: dict[tuple[str, str], BenchRow], colours: dict[str, str]) -> None:
    labels = [f"{plot_label(name)}\n{line.setting.short}" for (name, _), line in found.items()]
    for at, ((name, loader), line) in enumerate(found.items()):
        low, high = line.rate - min(line.rates), max(line.rates) - line.rate
        stock = loader == STOCK
        axes.barh(
            at,
            line.rate,
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
    plain(axes, grid="x")


def _curves(axes: Any, groups: dict[tuple[str, str], list[BenchRow]], colours: dict[str, str]) -> None:
    for (name, loader), lines in groups.items():
        ordered = sorted(lines, key=lambda line: line.setting.workers)
        workers = [line.setting.workers for line in ordered]
        stock = loader == STOCK
        face = "white" if stock else colours[name]
        axes.plot(
            workers,
            [line.rate for line in ordered],
            marker="o",
            mfc=face,
            label=f"{plot_label(name)}, {loader}",
            color=colours[name],
            linestyle={STOCK: "--", OUR_WORKERS: ":"}.get(loader, "-"),
        )
        lowest, highest = [min(line.rates) for line in ordered], [max(line.rates) for line in ordered]
        axes.fill_between(workers, lowest, highest, color=colours[name], alpha=0.12, linewidth=0)
    axes.set_xticks(sorted({line.setting.workers for lines in groups.values() for line in lines}))
    axes.set_xlabel("worker processes, or threads of Loader")
    axes.set_ylim(bottom=0)
    axes.set_title("over workers", loc="left", fontsize="medium")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.18), ncols=2, fontsize="small", frameon=False)
    plain(axes)


# ---- tune: the columns stacked over the number of workers

_COLOURS = {
    "compute": as_hex(palette.GREEN),
    "wait": as_hex(palette.VERMILION),
    "first": as_hex(palette.ORANGE),
    "epoch": as_hex(palette.PURPLE),
}
_TOLD = {
    "compute": "compute",
    "wait": "waiting for a batch",
    "first": "until the first batch",
    "epoch": "between epochs",
}


def draw_tune(rows: Sequence[TuneRow], plan: SweepPlan, path: Path) -> None:
    """Write the picture, seconds per epoch; raises MissingPackage, InvalidRequest, StorageError."""
    check(path)
    groups = [(loader, found) for loader in LOADERS if (found := [row for row in rows if row.setting.loader == loader])]
    widths = [max(2, len(found)) for _, found in groups]
    figure = new_figure(max(6.0, 1.5 + 0.62 * sum(widths)), 4)
    panels = figure.subplots(1, len(groups), squeeze=False, sharey=True, width_ratios=widths)[0]
    for axes, (loader, found) in zip(panels, groups, strict=True):
        _stack(axes, found, plan, recommended(rows))
        axes.set_title(loader if loader == STOCK else f"packer.{OURS}", loc="left", fontsize="medium")
        axes.set_xlabel("threads" if loader == OURS else "worker processes")
    panels[0].set_ylabel(f"seconds per epoch of {plan.steps} steps")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    save(figure, path)


def _stack(axes: Any, rows: Sequence[TuneRow], plan: SweepPlan, best: TuneRow) -> None:
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
                "recommended",
                (place, below[place]),
                xytext=(place, 0.97),
                textcoords=("data", "axes fraction"),
                ha="center",
                va="top",
                fontsize="small",
                arrowprops={"arrowstyle": "-|>", "color": "0.2"},
            )
    axes.margins(y=0.15)
    plain(axes)
