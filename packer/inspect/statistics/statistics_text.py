"""Statistics text: what was measured, as lines for a terminal. What comes out of a pack is made printable first."""

from collections.abc import Iterator
from typing import Any

from packer.files.terminal_output import shortened

_MOST_VALUES = 10  # classes, texts or values of a mask that are named
_MOST_GROUPS = 10
_MOST_KEYS = 4
_NAME = 12  # characters of the first column

Found = dict[str, Any]


def lines(result: Found) -> Iterator[str]:
    """The lines of a report on what `scan` found."""
    part = "" if result["measured"] == result["samples"] else f", {result['measured']} of them measured"
    yield f"{shortened(result['pack'])}: {result['samples']} samples{part}, format {result['format']}"
    if not result["measured"]:
        return
    for name, found in result["fields"].items():
        if not found.get("hidden") and name != "key":
            rows = [f"  {title:<{_NAME}} {text}" for title, text in _field(found)]
            yield from [f"{name} ({found['kind']}, {shortened(found['codec'])})", *rows] if rows else []
    yield from _bytes(result["fields"])
    yield from _duplicates(result["duplicates"])


def _field(found: Found) -> Iterator[tuple[str, str]]:
    if "sizes" in found:
        yield "size", _sizes(found["sizes"])
        yield "mode", _counts(list(found["modes"].items()))
    if "mean" in found:
        yield "mean", f"{_triple(found['mean'])}   red, green, blue as fractions of 255"
        yield "std", _triple(found["std"])
    if "invalid" in found:
        yield "range", f"{_range(found['range'])}, in the unit that is stored"
        yield "invalid", f"{found['invalid'] / max(found['pixels'], 1):.2%} of {found['pixels']} pixels"
    if found["kind"] == "mask":
        values = [(value, count / max(found["pixels"], 1)) for value, count in found["values"].items()]
        shown = [f"{value}: {share:.2%}" for value, share in values]
        if "distinct_values" in found:
            commonest = ", ".join(shown[:_MOST_VALUES])
            yield "values", f"{found['distinct_values']} distinct, the commonest: {commonest}"
        else:
            yield "values", _cut(shown)
    if "per_sample" in found:
        yield from _shapes(found)
    yield from _values(found)


def _shapes(found: Found) -> Iterator[tuple[str, str]]:
    per, without = found["per_sample"], found["samples"].get("0", 0)
    yield "per sample", f"{per['min']} to {per['max']}, mean {per['mean']:.2f}, median {per['median']}"
    yield "in all", f"{found['total']}, {without} samples have none" + _not_finite(found)
    for name in ("opening", "jaw", "width", "height"):
        if found.get(name):
            yield name, f"{_range(found[name])} px of the stored picture"


def _values(found: Found) -> Iterator[tuple[str, str]]:
    """Those of a text or a number."""
    if found["kind"] == "text":
        values = list(found["values"].items())
        more = f", {found['others']} samples with further or very long ones" if "others" in found else ""
        yield "values", f"{len(values)}: {_counts(values)}{more}"
    if "classes" in found:
        counts = [(name, count) for name, count in found["classes"] if count]
        one, many = (f"row of {found['of']}", f"rows of {found['of']}") if "of" in found else ("sample", "samples")
        yield "classes", f"{len(found['classes'])}, {len(found['classes']) - len(counts)} of them without a {one}"
        if counts:
            numbers = [count for _, count in counts]
            yield "balance", f"{min(numbers)} to {max(numbers)} {many}, {max(numbers) / min(numbers):.2f} to 1"
            yield "largest", _counts(sorted(counts, key=lambda item: -item[1]))
        if found["no_class"]:
            yield "no class", f"{found['no_class']} {many}"
    if "distinct" in found:
        yield "values", f"{found['distinct']} distinct, {_range(found['range'])}{_not_finite(found)}"


def _sizes(sizes: Found) -> str:
    """Width x height: one, or the ends of both and the most common ones."""
    common = [(f"{size['width']}x{size['height']}", size["count"]) for size in sizes["common"]]
    if sizes["distinct"] == 1:
        return f"{common[0][0]} px, every sample"
    ends = ", ".join(
        f"{side} {sizes[side]['min']} to {sizes[side]['max']} (median {sizes[side]['median']})"
        for side in ("width", "height")
    )
    return f"{ends}; {sizes['distinct']} sizes, most often {_counts(common)}"


def _range(range_: Found) -> str:
    if not range_:
        return "no value"
    return f"{range_['min']:.6g} to {range_['max']:.6g}, mean {range_['mean']:.6g}, std {range_['std']:.4g}"


def _not_finite(found: Found) -> str:
    return f", {found['not_finite']} not finite" if found["not_finite"] else ""


def _triple(numbers: list[float]) -> str:
    return "  ".join(f"{number:.4f}" for number in numbers)


def _counts(items: list[tuple[str, int]]) -> str:
    return _cut([f"{shortened(name)} ({count})" for name, count in items])


def _cut(texts: list[str]) -> str:
    more = f", and {len(texts) - _MOST_VALUES} more" if len(texts) > _MOST_VALUES else ""
    return ", ".join(texts[:_MOST_VALUES]) + more


def _bytes(fields: Found) -> Iterator[str]:
    total = sum(found["bytes"]["total"] for found in fields.values())
    width = max(map(len, fields))
    yield f"stored: {total:,} bytes"
    for name, found in fields.items():
        size = found["bytes"]
        share = size["total"] / max(total, 1)
        ends = f"{size['min']} to {size['max']} a sample, mean {size['mean']:.1f}"
        yield f"  {name:<{width}} {size['total']:>14} {share:>6.1%}   {ends}"


def _duplicates(found: dict[str, list[list[str]]]) -> Iterator[str]:
    for name, groups in found.items():
        samples = sum(len(group) - 1 for group in groups)
        yield f"duplicates in {name}: {samples or 'none'}"
        for group in groups[:_MOST_GROUPS]:
            more = f" and {len(group) - _MOST_KEYS} more" if len(group) > _MOST_KEYS else ""
            yield "  " + " = ".join(shortened(key) for key in group[:_MOST_KEYS]) + more
        if len(groups) > _MOST_GROUPS:
            yield f"  and {len(groups) - _MOST_GROUPS} more groups; --json has all"
