"""Statistics report: the result of a scan as lines for a terminal, and as charts in one PNG. Names are printable."""

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import InvalidRequest
from packer.files.terminal_output import plot_label, shortened
from packer.inspect.field_statistics import (
    JSON,
    Collector,
    ImageCollector,
    ImageSizeCollector,
    ShapeCollector,
)
from packer.inspect.palette import BLUE, GREEN, VERMILION, as_hex
from packer.inspect.statistics_scan import StatisticsScan
from packer.registry import import_or_explain

# ---- text

_MOST_VALUES = 10  # classes, texts or values of a mask
_MOST_GROUPS = 10
_MOST_KEYS = 4
_TITLE = 12  # characters of the first column


def lines(result: JSON) -> Iterator[str]:
    """Return the lines of a report on the statistics."""
    part = "" if result["measured"] == result["samples"] else f", {result['measured']} of them measured"
    yield f"{shortened(result['pack'])}: {result['samples']} samples{part}, format {result['format']}"
    if not result["measured"]:
        return
    for name, found in _shown_fields(result):
        rows = [f"  {title:<{_TITLE}} {text}" for title, text in _rows(found)]
        yield from [f"{name} ({found['kind']}, {shortened(found['codec'])})", *rows] if rows else []
    yield from _bytes(result["fields"])
    yield from _duplicates(result["duplicates"])


def _shown_fields(result: JSON) -> list[tuple[str, JSON]]:
    return [(name, found) for name, found in result["fields"].items() if not found.get("hidden") and name != "key"]


def _rows(found: JSON) -> Iterator[tuple[str, str]]:
    """Return (title, text) of each line about a field. found: statistics of the field."""
    if "sizes" in found:
        yield "size", _sizes(found["sizes"])
        yield "mode", _counts(found["modes"].items())
    if "mean" in found:
        mean, std = ("  ".join(f"{number:.4f}" for number in found[name]) for name in ("mean", "std"))
        yield "mean", f"{mean}   red, green, blue as fractions of 255"
        yield "std", std
    if "invalid" in found:
        yield "range", f"{_range(found['range'])}, in the unit that is stored"
        yield "invalid", f"{found['invalid'] / max(found['pixels'], 1):.2%} of {found['pixels']} pixels"
    if found["kind"] == "mask":
        shares = [f"{value}: {count / max(found['pixels'], 1):.2%}" for value, count in found["values"].items()]
        distinct = found.get("distinct_values")
        most_frequent = f"{distinct} distinct, the most frequent: {', '.join(shares[:_MOST_VALUES])}"
        yield "values", _cut(shares) if distinct is None else most_frequent
    if "per_sample" in found:
        counts, without = found["per_sample"], found["samples"].get("0", 0)
        not_finite = f", {found['not_finite']} not finite" if found["not_finite"] else ""
        yield "per sample", f"{counts['min']} to {counts['max']}, mean {counts['mean']:.2f}, median {counts['median']}"
        yield "in all", f"{found['total']}, {without} samples have none{not_finite}"
    for side in ("opening", "jaw", "width", "height"):
        if found.get(side):
            yield side, f"{_range(found[side])} px of the stored image"
    if found["kind"] == "text":
        more = f", {found['others']} samples with further or very long texts" if "others" in found else ""
        yield "values", f"{len(found['values'])}: {_counts(found['values'].items())}{more}"
    if "classes" in found:
        yield from _classes(found)
    if "distinct" in found:
        not_finite = f", {found['not_finite']} not finite" if found["not_finite"] else ""
        yield "values", f"{found['distinct']} distinct, {_range(found['range'])}{not_finite}"


def _classes(found: JSON) -> Iterator[tuple[str, str]]:
    counts = [(name, count) for name, count in found["classes"] if count]
    one, many = (f"row of {found['of']}", f"rows of {found['of']}") if "of" in found else ("sample", "samples")
    yield "classes", f"{len(found['classes'])}, {len(found['classes']) - len(counts)} of them without a {one}"
    if counts:
        least, most = min(count for _, count in counts), max(count for _, count in counts)
        yield "balance", f"{least} to {most} {many}, {most / least:.2f} to 1"
        yield "largest", _counts(_largest_first(counts))
    if found["no_class"]:
        yield "no class", f"{found['no_class']} {many}"


def _sizes(sizes: JSON) -> str:
    """Return width x height if all images have one size, else both ranges and the most frequent sizes."""
    common = [(f"{size['width']}x{size['height']}", size["count"]) for size in sizes["common"]]
    if sizes["distinct"] == 1:
        return f"{common[0][0]} px, every sample"
    ends = ", ".join(
        f"{side} {sizes[side]['min']} to {sizes[side]['max']} (median {sizes[side]['median']})"
        for side in ("width", "height")
    )
    return f"{ends}; {sizes['distinct']} sizes, most often {_counts(common)}"


def _range(range_: JSON) -> str:
    if not range_:
        return "no value"
    return f"{range_['min']:.6g} to {range_['max']:.6g}, mean {range_['mean']:.6g}, std {range_['std']:.4g}"


def _largest_first(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(counts, key=lambda item: -item[1])


def _counts(items: Iterable[tuple[str, int]]) -> str:
    return _cut([f"{shortened(name)} ({count})" for name, count in items])


def _cut(texts: list[str]) -> str:
    more = f", and {len(texts) - _MOST_VALUES} more" if len(texts) > _MOST_VALUES else ""
    return ", ".join(texts[:_MOST_VALUES]) + more


def _bytes(fields: JSON) -> Iterator[str]:
    total = sum(found["bytes"]["total"] for found in fields.values())
    width = max(map(len, fields))
    yield f"stored: {total:,} bytes"
    for name, found in fields.items():
        size = found["bytes"]
        ends = f"{size['min']} to {size['max']} a sample, mean {size['mean']:.1f}"
        yield f"  {name:<{width}} {size['total']:>14} {size['total'] / max(total, 1):>6.1%}   {ends}"


def _duplicates(found: dict[str, list[list[str]]]) -> Iterator[str]:
    for name, groups in found.items():
        yield f"duplicates in {name}: {sum(len(group) - 1 for group in groups) or 'none'}"
        for group in groups[:_MOST_GROUPS]:
            more = f" and {len(group) - _MOST_KEYS} more" if len(group) > _MOST_KEYS else ""
            yield "  " + " = ".join(shortened(key) for key in group[:_MOST_KEYS]) + more
        if len(groups) > _MOST_GROUPS:
            yield f"  and {len(groups) - _MOST_GROUPS} more groups; --json lists all"


# ---- charts

_ACROSS = 3
_MOST_CHARTS = 24
_MOST_BARS = 20
_MOST_CHARACTERS = 20
_MOST_STEPS = 40  # of a count
_LEAST_SHARE = 0.005  # of all bytes, for a separate bar
_CHART_INCHES = (4.6, 3.2)
_BLUE = as_hex(BLUE)
_CHANNELS = {"red": as_hex(VERMILION), "green": as_hex(GREEN), "blue": _BLUE}

Chart = Callable[[Any], None]  # draws into matplotlib axes


def draw_charts(scan: StatisticsScan) -> bytes:
    """Return the bytes of a PNG file with all charts.

    Raises:
        MissingPackage: If matplotlib is not installed.
        InvalidRequest: If no sample was measured.
    """
    result = scan.result
    if not len(scan.indices):
        raise InvalidRequest(f"{result['pack']}: no sample was measured, so there is nothing to plot")
    figures = import_or_explain("matplotlib.figure", "--plot")
    charts = list(_charts(scan))[:_MOST_CHARTS]
    across = min(_ACROSS, len(charts), 2 if len(charts) == 4 else _ACROSS)
    down = -(-len(charts) // across)
    size = (_CHART_INCHES[0] * across, _CHART_INCHES[1] * down + 0.5)
    figure = figures.Figure(figsize=size, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    name = _label(Path(result["pack"]).absolute().name)
    figure.suptitle(f"{name}: {result['measured']} of {result['samples']} samples", fontsize=12)
    every = figure.subplots(down, across, squeeze=False).ravel()
    for axes, chart in zip(every, charts, strict=False):
        chart(axes)
        axes.title.set_fontsize(10)
        axes.xaxis.label.set_fontsize(8)
        axes.yaxis.label.set_fontsize(8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in every[len(charts) :]:
        axes.set_axis_off()
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _charts(scan: StatisticsScan) -> Iterator[Chart]:
    for name, found in _shown_fields(scan.result):
        values = found.get("classes") or (list(found["values"].items()) if found["kind"] == "text" else [])
        if len(values) > 1:
            bars = [(_label(text), count) for text, count in _largest_first(values)]
            more = f": {_MOST_BARS} most frequent of {len(bars)}" if len(bars) > _MOST_BARS else ""
            yield _bars(bars, title=name + more, unit=found.get("of", "samples"))
        if name in scan.collectors:
            yield from _field_charts(scan.collectors[name])
    sizes = {name: found["bytes"]["total"] / 1e6 for name, found in scan.result["fields"].items()}
    least = sum(sizes.values()) * _LEAST_SHARE
    shown = {name: size for name, size in sizes.items() if size >= least}
    shown["all other fields"] = sum(sizes.values()) - sum(shown.values())
    yield _bars(_largest_first(shown.items()), title="stored bytes per field", unit="MB")


def _field_charts(collector: Collector) -> Iterator[Chart]:
    if isinstance(collector, ImageSizeCollector) and len(collector.sizes) > 1:
        yield lambda axes: _draw_sizes(axes, collector)
    match collector:
        case ImageCollector() if collector.histogram.any():
            yield lambda axes: _draw_channels(axes, collector)
        case ShapeCollector():
            yield lambda axes: _draw_counts(axes, collector)


def _bars(items: list[tuple[str, Any]], *, title: str, unit: str) -> Chart:
    """Return a chart of (name, length) pairs, the first one on top. At most the first `_MOST_BARS` are shown."""
    shown = items[:_MOST_BARS][::-1]

    def draw(axes: Any) -> None:
        axes.barh(range(len(shown)), [length for _, length in shown], color=_BLUE)
        axes.set_yticks(range(len(shown)), [name for name, _ in shown])
        axes.set(title=title, xlabel=unit)

    return draw


def _draw_sizes(axes: Any, collector: ImageSizeCollector) -> None:
    """Draw a dot per size, whose area grows with the number of images."""
    sizes = collector.sizes
    areas = [12 + 150 * count / max(sizes.values()) for count in sizes.values()]
    axes.scatter([width for _, width in sizes], [height for height, _ in sizes], s=areas, alpha=0.5, color=_BLUE)
    axes.set(title=f"{collector.field.name}: {len(sizes)} sizes", xlabel="width, px", ylabel="height, px")


def _draw_channels(axes: Any, collector: ImageCollector) -> None:
    for (name, color), counts in zip(_CHANNELS.items(), collector.histogram, strict=True):
        axes.plot(range(256), counts / counts.sum(), color=color, linewidth=1, label=name)
    axes.set(title=f"{collector.field.name}: values of each channel", ylabel="share of pixels", xlim=(0, 255))
    axes.set_ylim(0)
    axes.legend(fontsize=8, frameon=False)


def _draw_counts(axes: Any, collector: ShapeCollector) -> None:
    counts = collector.counts.counts
    least, most = min(counts), max(counts)
    step = -(-(most - least + 1) // _MOST_STEPS)
    edges = np.arange(least, most + step + 1, step) - 0.5
    axes.hist(list(counts), bins=edges, weights=list(counts.values()), color=_BLUE, rwidth=0.9)
    axes.set(title=f"{collector.field.name} per sample", ylabel="samples")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.get_major_locator().set_params(integer=True)


def _label(text: str) -> str:
    """Return a short text that matplotlib draws unchanged: printable, not a formula between dollars."""
    shown = shortened(text)
    return plot_label(shown if len(shown) <= _MOST_CHARACTERS else shown[:_MOST_CHARACTERS] + "...")
