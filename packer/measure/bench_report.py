"""What `packer bench` says: a table, the fastest in one sentence, and the same as JSON and CSV."""

from collections.abc import Iterator, Sequence
from typing import Any

from packer.measure.bench import Line
from packer.measure.caching import WARM_SHARE
from packer.measure.figures import table
from packer.measure.setting import STOCK

CSV_HEAD = (
    *("source", "loader", "workers", "round", "samples_per_second", "mb_per_second", "cpu_seconds_per_1000"),
    *("first_batch_seconds", "memory_mb", "resident_share"),
)


def text(lines: Sequence[Line]) -> list[str]:
    """The table and what is to be said of it; lines as `bench.run` gives them."""
    unit = "images/s" if all(line.pictures == 1 for line in lines) else "samples/s"
    head = ("", "workers", unit, "(lowest - highest)", "MB/s", "CPU s/1000", "first batch", "memory")
    rows = [_row(line) for line in lines]
    return [*table(head, rows), "", *_fastest(lines, unit), *_warm(lines)]


def _row(line: Line) -> tuple[str, ...]:
    rates = line.rates
    return (
        f"{line.subject.name}, {line.setting.loader}",
        str(line.setting.workers),
        f"{line.rate:.0f}",
        f"({min(rates):.0f} - {max(rates):.0f})",
        f"{line.rate * line.mb_per_sample:.1f}",
        f"{line.cpu_per_1000:.2f}",
        f"{line.first_batch_seconds * 1e3:.0f} ms",
        f"{line.memory_mb:.0f} MB",
    )


def best(lines: Sequence[Line]) -> Line:
    """The one with the highest median."""
    return max(lines, key=lambda line: line.rate)


def _fastest(lines: Sequence[Line], unit: str) -> Iterator[str]:
    """A sentence for all sources of one number of samples: they are taken for the same data."""
    for count in dict.fromkeys(line.stored_samples for line in lines):
        same = [line for line in lines if line.stored_samples == count]
        first, other = best(same), _baseline(same)
        sentence = f"Fastest: {first.name}: {first.rate:.0f} {unit}"
        if other is not first:
            sentence += f", {_factor(first, other):.1f} times {other.name} ({other.rate:.0f})"
        yield sentence + "."


def _baseline(lines: Sequence[Line]) -> Line:
    """The best of the first source, through DataLoader if that took part."""
    first = [line for line in lines if line.subject == lines[0].subject]
    return best([line for line in first if line.setting.loader == STOCK] or first)


def _factor(one: Line, other: Line) -> float:
    """Of the medians as the table shows them, so that a reader who divides them finds the same."""
    return round(one.rate) / max(1, round(other.rate))


def _warm(lines: Sequence[Line]) -> Iterator[str]:
    """Which subjects were not cold although that was asked for."""
    shares: dict[str, list[float | None]] = {}
    for line in lines:
        shares.setdefault(line.subject.name, []).extend(line.warm_share)
    for name, found in shares.items():
        if None in found:
            yield f"{name}: this system does not tell what is in the page cache (mincore): maybe it was not cold."
        elif found and (most := max(share or 0.0 for share in found)) > WARM_SHARE:
            yield (
                f"{name}: NOT cold: up to {most:.0%} of it stayed in memory after it was dropped from the page cache: "
                "it lies on a file system in memory, or another process has it mapped."
            )
        elif found:
            yield f"{name}: cold before every turn (at most {max(share or 0.0 for share in found):.1%} left in memory)."


def document(lines: Sequence[Line], **options: Any) -> dict[str, Any]:
    """Everything, for programs."""
    rows = [
        {
            "source": line.subject.name,
            "is_pack": line.subject.is_pack,
            "loader": line.setting.loader,
            "workers": line.setting.workers,
            "samples_per_second": {"median": line.rate, "all": line.rates},
            "mb_per_second": line.rate * line.mb_per_sample,
            "cpu_seconds_per_1000": line.cpu_per_1000,
            "first_batch_seconds": line.first_batch_seconds,
            "memory_mb": line.memory_mb,
            "pictures_per_sample": line.pictures,
            "resident_share": line.warm_share,
            "turns": line.turns,
        }
        for line in lines
    ]
    return {"title": "packer bench", "options": options, "lines": rows}


def csv_rows(lines: Sequence[Line]) -> list[tuple[Any, ...]]:
    """A row per line and round, as CSV_HEAD names them."""
    rows: list[tuple[Any, ...]] = []
    for line in lines:
        for number, turn in enumerate(line.turns):
            rate = turn["samples"] / turn["seconds"]
            share = line.warm_share[number] if line.warm_share else ""
            rows.append(
                (
                    *(line.subject.name, line.setting.loader, line.setting.workers, number + 1),
                    *(f"{rate:.2f}", f"{rate * line.mb_per_sample:.3f}"),
                    f"{turn['cpu_seconds'] / turn['samples'] * 1000:.3f}",
                    *(f"{turn['first_batch_seconds']:.4f}", f"{line.memory_mb:.1f}", share),
                )
            )
    return rows
