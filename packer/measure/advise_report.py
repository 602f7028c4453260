"""What `packer advise` says: the machine, a table of predictions, what to do and why, and the same as JSON."""

from collections.abc import Iterator
from typing import Any

from packer.files.text import shell_word
from packer.measure.advise import Advice
from packer.measure.figures import table
from packer.measure.machine import cores_text
from packer.measure.prediction import Prediction

_WORTH = 1.1  # times the source as it is
_HEAD_LAST = ("first epoch", "decode ms", "GB", "convert", "in memory")


def text(advice: Advice) -> list[str]:
    """Lines for the terminal."""
    unit = "images/s" if advice.pictures == 1 else "samples/s"
    head = ("", "codec", "size", unit, *_HEAD_LAST)
    now = ("source", "", "as it is", _rate(advice.now), "", "", f"{advice.whole.bytes / 1e9:.3f}", "", "")
    rows = [now, *(_row(one, marked=one is advice.best) for one in advice.predictions)]
    about = [*_machine(advice), _set(advice), ""]
    return [*about, *table(head, rows), "", *_notes(advice), *verdict(advice, unit)]


def _row(one: Prediction, *, marked: bool) -> tuple[str, ...]:
    how = one.candidate
    return (
        how.format,
        how.codec + "*" * how.loses,
        how.size or "as it is",
        _rate(one.rate),
        _rate(one.first_rate),
        f"{one.trial.decode_ms:.2f}",
        f"{one.pack_bytes / 1e9:.3f}",
        _duration(one.convert_seconds),
        ("yes" if one.fits_memory else "no") + (" <-" if marked else "   "),
    )


def _rate(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 99.5 else f"{seconds / 60:.0f} min"


def _machine(advice: Advice) -> Iterator[str]:
    shared = advice.shared
    shm = f"{shared.free_bytes / 1e9:.1f} GB free in {shared.name}" if shared else "no shared memory"
    memory = f"{advice.rates.memory_bytes / 1e9:.1f} GB of memory for files, {shm}"
    yield f"Machine: {cores_text()}, {memory}, copies {advice.copying / 1e9:.1f} GB/s in memory"
    disk = advice.disk
    read = f"reads {disk.read / 1e6:.0f} MB/s cold" if disk.read else "never reads cold: it lies in memory"
    yield (
        f"Disk of {advice.target}: {disk.free_bytes / 1e9:.1f} GB free, writes {disk.write / 1e6:.0f} MB/s, {read} "
        "(blocks of 256 KiB)"
    )


def _set(advice: Advice) -> str:
    found = f"Source: {advice.whole.samples} samples, {advice.whole.bytes / 1e9:.3f} GB"
    reading = advice.reading
    if reading is None:
        return found
    cold = f"{reading.cold / 1e6:.0f} MB/s cold" if reading.cold else "cold unknown (it stayed in memory)"
    return f"{found}; its files are read at {cold}, {reading.warm / 1e6:.0f} MB/s warm"


def _notes(advice: Advice) -> Iterator[str]:
    if any(one.candidate.loses for one in advice.predictions):
        yield "* makes pictures a little worse: lossless ones become JPEG, or JPEG is encoded a second time."
    if advice.predictions and (bad := advice.predictions[0].trial.skipped):
        drawn = len(bad) + advice.predictions[0].trial.samples
        yield (
            f"{len(bad)} of {drawn} samples cannot be packed, such as {bad[0]}; convert lists all of them, "
            "--on-error skip leaves them out"
        )
    for line in advice.left_out:
        yield f"Not tried: {line}"
    yield (
        f"All cores, packer.Loader with batches of {advice.question.batch_size}, {advice.geometry}; "
        "decode ms: on one core, with the warp."
    )


def verdict(advice: Advice, unit: str) -> Iterator[str]:
    """What to do and why, and the command."""
    best = advice.best
    if not advice.predictions:
        yield "No advice: nothing could be tried, as said above."
        return
    if best is None:
        yield "No advice: nothing that was tried fits on the disk; try a smaller --size, or another disk."
        return
    why = f"{best.rate:.0f} {unit}"
    if advice.now:
        why += f", {best.rate / advice.now:.1f} times the source as it is ({advice.now:.0f})"
    fits = "fits in memory" if best.fits_memory else "does NOT fit in memory, which costs in every epoch"
    yield f"Recommended: {_named(best)}: {why}; {best.pack_bytes / 1e9:.3f} GB, {fits}."
    if advice.now and best.rate < _WORTH * advice.now:
        yield "That is hardly faster than the source as it is."
    yield from _passed_over(advice, best, unit)
    if advice.thrifty:
        less = advice.thrifty
        yield f"At most half as large: {_named(less)}: {less.rate:.0f} {unit}, {less.pack_bytes / 1e9:.3f} GB:"
        yield f"  {advice.line(less)}"
    yield "Paste:"
    yield f"  {advice.line(best)}"
    if advice.has_grasps:
        words = f"{shell_word(str(advice.question.path))} {shell_word(str(advice.target))}"
        yield "For GG-CNN or GR-ConvNet, whose items show less than whole pictures (or --preset grconvnet):"
        yield f"  packer convert {words} --preset ggcnn"


def _passed_over(advice: Advice, best: Prediction, unit: str) -> Iterator[str]:
    """Why the fastest and the smallest row are not the recommended one, where they are others."""
    fastest = max(advice.predictions, key=lambda one: one.rate)
    smallest = min(advice.predictions, key=lambda one: one.pack_bytes)
    if fastest is not best and fastest.rate > best.rate:
        why = _objection(fastest, advice) or f"hardly faster, and {fastest.pack_bytes / 1e9:.3f} GB"
        yield f"Not the fastest row ({_named(fastest)}, {fastest.rate:.0f} {unit}): {why}."
    if smallest not in (best, fastest, advice.thrifty) and smallest.pack_bytes < best.pack_bytes:
        why = _objection(smallest, advice) or f"it gives {smallest.rate:.0f} {unit}"
        yield f"Not the smallest row ({_named(smallest)}, {smallest.pack_bytes / 1e9:.3f} GB): {why}."


def _objection(one: Prediction, advice: Advice) -> str | None:
    """What keeps a row from being recommended; None where only the others are better."""
    if one.candidate.loses:
        return "it makes pictures worse (*)"
    if one.candidate.size not in advice.sizes:
        return f"at size {one.candidate.size} a zoom or crop of {advice.geometry} misses pixels that training shows"
    return None if one.fits_disk else "it does not fit on the disk"


def _named(one: Prediction) -> str:
    how = one.candidate
    size = f", size {how.size}" if how.size else ", size as it is"
    return f"{how.format}, {how.codec}{size}"


def document(advice: Advice) -> dict[str, Any]:
    """Everything, for programs: samples per second, bytes, seconds."""
    rows = [
        {
            "format": one.candidate.format,
            "codec": one.candidate.codec,
            "size": one.candidate.size,
            "loses": one.candidate.loses,
            "samples_per_second": one.rate,
            "samples_per_second_first_epoch": one.first_rate,
            "decode_ms": one.trial.decode_ms,
            "pack_bytes": one.pack_bytes,
            "convert_seconds": one.convert_seconds,
            "fits_memory": one.fits_memory,
            "fits_disk": one.fits_disk,
            "trial_samples": one.trial.samples,
            "recommended": one is advice.best,
            "command": advice.line(one),
        }
        for one in advice.predictions
    ]
    return {
        "title": "packer advise",
        "options": {"geometry": advice.geometry, "batch": advice.question.batch_size},
        "source": {**vars(advice.whole), "samples_per_second": advice.now},
        "reading": vars(advice.reading) if advice.reading else None,
        "disk": vars(advice.disk),
        "copying": advice.copying,
        "memory_bytes": advice.rates.memory_bytes,
        "shared_memory_bytes": advice.shared.free_bytes if advice.shared else None,
        "left_out": list(advice.left_out),
        "predictions": rows,
    }
