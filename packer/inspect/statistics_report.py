"""Statistics report: the result of a scan as lines for a terminal. Names are printable."""

from collections.abc import Iterable, Iterator

from packer.files.terminal_output import shortened
from packer.inspect.field_statistics import JSON

_MOST_VALUES = 10  # classes, texts or values of a mask
_MOST_GROUPS = 10
_MOST_KEYS = 4
_TITLE = 12  # characters of the first column


def lines(result: JSON) -> Iterator[str]:
    """Yield the lines of a report on the statistics."""
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
    """Yield (title, text) for each line about a field with the statistics `found`."""
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
        yield "largest", _counts(sorted(counts, key=lambda item: -item[1]))
    if found["no_class"]:
        yield "no class", f"{found['no_class']} {many}"


def _sizes(sizes: JSON) -> str:
    """Return width x height if all images have one size, else the ranges of both and the most frequent sizes."""
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
