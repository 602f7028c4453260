"""Results of a tool as text, JSON and a plot, with a description of the machine."""

import io
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packer.errors import InvalidRequest
from packer.files.atomic_save import save
from packer.files.terminal_output import echo, hand_over, plot_label
from packer.inspect import palette
from packer.registry import check_installed, import_or_explain
from packer.system.parallel import usable_cores

_PACKAGES = ("torch", "numpy", "lmdb", "opencv-python", "simplejpeg", "PyTurboJPEG")
_PLOT_SUFFIXES = (".png", ".svg", ".pdf")
_DPI = 120
_COLORS = (
    *(palette.GREEN, palette.VERMILION, palette.ORANGE, palette.PURPLE),
    *(palette.BLUE, palette.SKY, palette.YELLOW, palette.BLACK),
)


@dataclass(frozen=True)
class ToolReport:
    """The results of one command.

    Attributes:
        text: Lines for the terminal.
        document: All numbers, serializable as JSON.
        draw: Function that returns the plot as a matplotlib Figure. None if the command has no plot.
    """

    text: Sequence[str]
    document: Mapping[str, Any]
    draw: Callable[[], Any] | None = None

    def print(self, *, as_json: bool) -> None:
        """Print the text to standard output. If `as_json` is true, print JSON to standard output, text to stderr."""
        echo(*self.text, err=as_json)
        if as_json:
            hand_over([json.dumps(self._with_machine(), sort_keys=True)])

    def write(self, path: Path) -> None:
        """Write the JSON document to `path`, over an existing file. Raises StorageError, InvalidRequest, UnsafePath."""
        save(path, f"{json.dumps(self._with_machine(), indent=2)}\n".encode())

    def save_plot(self, path: Path) -> None:
        """Write the plot to `path`. Do nothing without a plot. Raises MissingPackage and the errors of `write`."""
        check_plot(path)
        if self.draw is not None:
            save_figure(self.draw(), path)

    def _with_machine(self) -> dict[str, Any]:
        return {"machine": machine(), **self.document}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a text table. The first column is aligned to the left, all other columns to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = []
    for row in (head, *rows):
        first, *rest = row
        cells = [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


# ---- the machine


def machine() -> dict[str, Any]:
    """Return the CPU model, the number of usable cores, and the versions of Python and of important packages."""
    found: dict[str, Any] = {"cpu": _model(), "cores": usable_cores(), "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # simplejpeg is optional
            continue
    return found


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def cores_text(cgroup: Path = Path("/sys/fs/cgroup")) -> str:
    """Return a text with the number of cores that this process may use, and with the limit if the machine has more."""
    usable, there = usable_cores(cgroup), os.cpu_count() or 1
    if usable >= there:
        return f"{usable} usable cores"
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    why = "the cgroup's CPU quota" if usable < allowed else "the CPU affinity"
    return f"{usable} usable cores of {there}, limited by {why}"


# ---- plots; matplotlib is optional


def check_plot(path: Path) -> None:
    """Raise MissingPackage without matplotlib, and InvalidRequest if the suffix is not .png, .svg or .pdf."""
    check_installed("matplotlib", "--plot")
    if path.suffix.lower() not in _PLOT_SUFFIXES:
        raise InvalidRequest(f"{path}: cannot draw into it; expected a name that ends in {', '.join(_PLOT_SUFFIXES)}")


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib Figure of a size in inches, without global pyplot state. Raises MissingPackage."""
    module: Any = import_or_explain("matplotlib.figure", "--plot")
    return module.Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any, *, grid: str = "y") -> None:
    """Draw a light grid behind the data and hide the frame. grid: axes with grid lines, "x", "y" or "both"."""
    axes.grid(axis=grid, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to `path`, over an existing file. Raises StorageError, InvalidRequest and UnsafePath."""
    data = io.BytesIO()
    figure.savefig(data, dpi=_DPI, format=path.suffix[1:].lower())
    save(path, data.getvalue())


@dataclass(frozen=True)
class ChartPanel:
    """One panel of a bar chart, with stacked bars next to each other.

    Attributes:
        ticks: Name of each bar.
        stacks: Label of a segment -> height of the segment in each bar. The first label is at the bottom.
        ranges: (lowest, highest) of each bar, drawn as an error bar. Empty for no error bars.
        marked: Index of the bar at which `bar_chart` draws the text `mark`. None marks no bar.
    """

    title: str
    xlabel: str
    ticks: Sequence[str]
    stacks: Mapping[str, Sequence[float]]
    ranges: Sequence[tuple[float, float]] = ()
    marked: int | None = None


def bar_chart(panels: Sequence[ChartPanel], *, ylabel: str, mark: str = "", title: str = "", below: str = "") -> Any:
    """Return a matplotlib Figure with the panels from left to right. All panels share the y axis and the colors.

    Args:
        mark: Text at the bar `ChartPanel.marked` of each panel.
        below: Sentence below the chart.

    Raises:
        MissingPackage: matplotlib is not installed.
    """
    labels = list(dict.fromkeys(label for panel in panels for label in panel.stacks))
    colors = {label: palette.as_hex(_COLORS[at % len(_COLORS)]) for at, label in enumerate(labels)}
    widths = [max(2, len(panel.ticks)) for panel in panels]
    drawn = new_figure(max(6.0, 1.5 + 0.62 * sum(widths)), 4)
    rows = drawn.subplots(1, len(panels), squeeze=False, sharey=True, width_ratios=widths)
    handles: dict[str, Any] = {}
    for axes, panel in zip(rows[0], panels, strict=True):
        handles |= _draw_panel(axes, panel, colors, mark)
    rows[0][0].set_ylabel(ylabel)
    drawn.suptitle(plot_label(title), fontsize="medium")
    drawn.supxlabel(plot_label(below), fontsize="small", wrap=True)
    shown = [handles[label] for label in labels]
    drawn.legend(shown, map(plot_label, labels), loc="outside right", fontsize="small", frameon=False)
    return drawn


def _draw_panel(axes: Any, panel: ChartPanel, colors: Mapping[str, str], mark: str) -> dict[str, Any]:
    """Draw a panel. Return label -> drawn bars, for the legend."""
    positions = range(len(panel.ticks))
    totals = [0.0] * len(panel.ticks)
    handles: dict[str, Any] = {}
    for label, heights in panel.stacks.items():
        handles[label] = axes.bar(positions, heights, bottom=totals, color=colors[label], width=0.75)
        totals = [total + height for total, height in zip(totals, heights, strict=True)]
    for position, (total, (low, high)) in enumerate(zip(totals, panel.ranges, strict=False)):
        axes.errorbar(position, total, yerr=([total - low], [high - total]), ecolor="0.25", capsize=3, fmt="none")
    axes.set_xticks(positions, map(plot_label, panel.ticks))
    if panel.marked is not None:
        axes.annotate(
            mark,
            (panel.marked, totals[panel.marked]),
            xytext=(panel.marked, 0.97),
            textcoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontsize="small",
            arrowprops={"arrowstyle": "-|>", "color": "0.2"},
        )
    axes.set_title(plot_label(panel.title), loc="left", fontsize="medium")
    axes.set_xlabel(panel.xlabel)
    axes.margins(y=0.15)
    plain(axes)
    return handles
