"""Statistics plot: one PNG, drawn by matplotlib, which is an optional package. One chart per thing to know."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import InvalidRequest
from packer.files.terminal_output import plot_label, shortened
from packer.inspect.palette import BLUE, GREEN, VERMILION, as_hex
from packer.inspect.statistics.field_collectors import (
    Collector,
    DepthCollector,
    ImageCollector,
    PictureCollector,
    ShapeCollector,
)
from packer.inspect.statistics.scan import StatisticsScan
from packer.registry import import_or_explain

_ACROSS = 3
_MOST_CHARTS = 24
_MOST_BARS = 20
_BINS = 100
_MOST_CHARACTERS = 20
_MOST_STEPS = 40  # of a count
_LEAST_SHARE = 0.005  # of all bytes, for a bar of its own
_CHART_INCHES = (4.6, 3.2)
_BLUE = as_hex(BLUE)
_CHANNELS = {"red": as_hex(VERMILION), "green": as_hex(GREEN), "blue": _BLUE}

Chart = Callable[[Any], None]  # draws into matplotlib axes


def draw_plot(scan: StatisticsScan) -> bytes:
    """A PNG file with all charts; raises MissingPackage without matplotlib, InvalidRequest where nothing was
    measured.
    """
    if not len(scan.indices):
        raise InvalidRequest(f"{scan.result['pack']}: no sample was measured, so there is nothing to plot")
    figures = import_or_explain("matplotlib.figure", "--plot")
    charts = _charts(scan)[:_MOST_CHARTS]
    across = min(_ACROSS, len(charts), 2 if len(charts) == 4 else _ACROSS)
    down = -(-len(charts) // across)
    size = (_CHART_INCHES[0] * across, _CHART_INCHES[1] * down + 0.5)
    figure = figures.Figure(figsize=size, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    result = scan.result
    figure.suptitle(
        f"{_plain(Path(result['pack']).absolute().name)}: {result['measured']} of {result['samples']} samples",
        fontsize=12,
    )
    every = figure.subplots(down, across, squeeze=False).ravel()
    for axes, chart in zip(every, charts, strict=False):
        chart(axes)
        axes.title.set_fontsize(10)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in every[len(charts) :]:
        axes.set_axis_off()
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _charts(scan: StatisticsScan) -> list[Chart]:
    """What there is to draw, the most telling first."""
    charts: list[Chart] = []
    for name, found in scan.result["fields"].items():
        if found.get("hidden") or name == "key":
            continue
        values = found.get("classes") or (list(found["values"].items()) if found["kind"] == "text" else [])
        if len(values) > 1:
            charts.append(partial(_draw_balance, name=name, values=values, counted=found.get("of", "samples")))
        if name in scan.collectors:
            charts += _field_charts(scan.collectors[name])
    return [*charts, partial(_draw_bytes, scan=scan)]


def _field_charts(collector: Collector) -> list[Chart]:
    charts: list[Chart] = []
    if isinstance(collector, PictureCollector) and len(collector.sizes) > 1:
        charts.append(partial(_draw_sizes, collector=collector))
    if isinstance(collector, ImageCollector) and collector.histogram.any():
        charts.append(partial(_draw_channels, collector=collector))
    if isinstance(collector, DepthCollector) and collector.moments.count:
        charts.append(partial(_draw_depth, collector=collector))
    if isinstance(collector, ShapeCollector):
        charts.append(partial(_draw_counts, collector=collector))
    return charts


def _draw_balance(axes: Any, *, name: str, values: list[tuple[str, int]], counted: str) -> None:
    """Samples, or rows of the field `counted`, per class or text, the most frequent on top."""
    ordered = sorted(values, key=lambda item: -item[1])[:_MOST_BARS][::-1]
    _bars(axes, [_plain(text) for text, _ in ordered], [count for _, count in ordered])
    axes.set_title(name if len(values) <= _MOST_BARS else f"{name}: {_MOST_BARS} most frequent of {len(values)}")
    axes.set_xlabel(counted, fontsize=8)


def _draw_bytes(axes: Any, *, scan: StatisticsScan) -> None:
    totals = {name: found["bytes"]["total"] / 1e6 for name, found in scan.result["fields"].items()}
    least = sum(totals.values()) * _LEAST_SHARE
    shown = {name: size for name, size in totals.items() if size >= least}
    shown["all other fields"] = sum(totals.values()) - sum(shown.values())
    ordered = sorted(shown.items(), key=lambda item: -item[1])[:_MOST_BARS][::-1]
    _bars(axes, [name for name, _ in ordered], [size for _, size in ordered])
    axes.set_title("stored bytes per field")
    axes.set_xlabel("MB", fontsize=8)


def _bars(axes: Any, names: list[str], lengths: list[Any]) -> None:
    axes.barh(range(len(names)), lengths, color=_BLUE)
    axes.set_yticks(range(len(names)), names)


def _draw_sizes(axes: Any, *, collector: PictureCollector) -> None:
    """A dot per size, its area for how many pictures have it."""
    sizes = collector.sizes
    largest = max(sizes.values())
    areas = [12 + 150 * count / largest for count in sizes.values()]
    axes.scatter([width for _, width in sizes], [height for height, _ in sizes], s=areas, alpha=0.5, color=_BLUE)
    axes.set_title(f"{collector.field.name}: {len(sizes)} sizes")
    axes.set_xlabel("width, px", fontsize=8)
    axes.set_ylabel("height, px", fontsize=8)


def _draw_channels(axes: Any, *, collector: ImageCollector) -> None:
    for (name, colour), counts in zip(_CHANNELS.items(), collector.histogram, strict=True):
        axes.plot(range(256), counts / counts.sum(), color=colour, linewidth=1, label=name)
    axes.set_title(f"{collector.field.name}: values of each channel")
    axes.set_xlim(0, 255)
    axes.set_ylim(0)
    axes.set_ylabel("share of pixels", fontsize=8)
    axes.legend(fontsize=8, frameon=False)


def _draw_depth(axes: Any, *, collector: DepthCollector) -> None:
    lows, highs, counts = collector.distribution()
    below = np.concatenate([[0], np.cumsum(counts)]) / counts.sum()
    edges = np.linspace(lows[0], highs[-1], _BINS + 1)
    # shares between steps as well, else bars of unlike numbers of steps would rise and fall
    shares = np.interp(edges, np.stack([lows, highs], 1).ravel(), np.stack([below[:-1], below[1:]], 1).ravel())
    axes.stairs(np.diff(shares), edges, fill=True, color=_BLUE)
    axes.set_title(f"{collector.field.name}: valid depths")
    axes.set_xlabel("depth, in the unit that is stored", fontsize=8)
    axes.set_ylabel("share of valid pixels", fontsize=8)


def _draw_counts(axes: Any, *, collector: ShapeCollector) -> None:
    counts = collector.counts.counts
    least, most = min(counts), max(counts)
    step = -(-(most - least + 1) // _MOST_STEPS)
    edges = np.arange(least, most + step + 1, step) - 0.5
    axes.hist(list(counts), bins=edges, weights=list(counts.values()), color=_BLUE, rwidth=0.9)
    axes.set_title(f"{collector.field.name} per sample")
    axes.set_ylabel("samples", fontsize=8)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.get_major_locator().set_params(integer=True)


def _plain(text: str) -> str:
    """A text that matplotlib draws as it stands: printable, short, and no formula between dollars."""
    shown = shortened(text)
    return plot_label(shown if len(shown) <= _MOST_CHARACTERS else shown[:_MOST_CHARACTERS] + "...")
