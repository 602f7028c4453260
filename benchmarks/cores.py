"""What more cores would give: threads, which share an interpreter, and processes, from what one thread takes.

Of an image's CPU time a part holds the interpreter (the GIL), and the rest does not. Threads are then customers of one
server, each of them going round: work of its own, then the interpreter. How many images a second come out of N threads
is what mean value analysis says of such a closed network (Reiser and Lavenberg, JACM 27, 1980): exact for exponential
times, and pessimistic for steadier ones. Processes have an interpreter each. What the model leaves out is that cores
share caches and memory.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import base
from loader import GEOMETRIES, cpu_time, interpreter_time

CORES = (1, 2, 4, 8, 16, 32, 64)
CODECS = {"kept bytes": (), "jpeg:90": ("--codec", "image=jpeg:90"), "ycc420": ("--codec", "image=ycc420")}


def rates(cpu_us: float, held_us: float) -> dict[int, float]:
    """Images a second of N threads on as many cores: mean value analysis of a delay and one queue."""
    found, queued = {}, 0.0
    for threads in range(1, max(CORES) + 1):
        response = held_us * (1 + queued)
        rate = threads / (cpu_us - held_us + response)
        queued = rate * response
        found[threads] = rate * 1e6
    return {threads: found[threads] for threads in CORES}


def main() -> None:
    args = base.arguments(__doc__ or "", images=None, samples=1000)
    with tempfile.TemporaryDirectory(prefix="packer-bench-") as name:
        photos = base.photos(args.images, Path(name), args.samples)
        figures: dict[str, Any] = {}
        rows: dict[str, str] = {"": "CPU us (interpreter us); two threads wait"}
        for codec, options in CODECS.items():
            pack = Path(name) / f"{len(figures)}.pack"
            base.seconds([*base.PACKER, "convert", photos, pack, "--to", "lmdb", *options])
            for label, geometry in GEOMETRIES.items():
                cpu, held = cpu_time(pack, geometry), interpreter_time(pack, geometry)
                threads = rates(cpu, held)
                waited = 1 - threads[2] / (2 * threads[1])
                row = f"{codec}, {label}"
                figures[row] = {"cpu_us": cpu, "interpreter_us": held, "waited": waited, "threads": threads}
                rows[row] = f"{cpu:.0f} ({held:.1f}); {waited:.1%}"
                shown = ", ".join(f"{count}: {rate:.0f}" for count, rate in threads.items())
                rows[f"{row}, images/s of N threads"] = f"{shown}; at most {1e6 / held:.0f}"
                rows[f"{row}, of N workers"] = ", ".join(f"{count}: {count * 1e6 / cpu:.0f}" for count in CORES)
    base.report("Images a second over cores, threads beside processes", rows, figures, args)


if __name__ == "__main__":
    sys.exit(main())
