"""Row filters over the columns of many samples: milliseconds of each condition."""

import statistics
import time
from typing import Any

import base
import numpy as np

from packer.pack.filter_columns import PackColumns
from packer.pack.row_filter import parse
from packer.pack.sample_index import Index
from packer.schema import Field, Schema

CONDITIONS = {
    "class, width and key": "label == 'class7' and width >= 256 and 'a' in key",
    "class": "label == 'class7'",
    "width": "width >= 256",
    "a letter in key": "'a' in key",
    "a word in key": "'img_00' in key",
    "one key": "key == 'train/n007/img_0000007.jpg'",
    "100 keys": f"key in ({', '.join(repr(f'train/n{at:03d}/img_{at:07d}.jpg') for at in range(100))})",
    "500 classes": f"label in ({', '.join(repr(f'class{at}') for at in range(500))})",
    "class and width of a box": "any(box_labels == 'class7' and boxes.width < 40)",
    "area of a box": "any(boxes.area < 1024)",
}
BOXES = 7  # of a sample, on average


def columns(samples: int) -> PackColumns:
    """Columns of samples of 1000 classes, with keys of 25 bytes and boxes of 80 classes."""
    random = np.random.default_rng(0)
    classes = tuple(f"class{number}" for number in range(1000))
    label = Field("label", "number", "number", dtype="int64", shape=(), classes=classes)
    boxes = Field("boxes", "boxes", "raw:float32", "float32", (None, 4))
    box_labels = Field("box_labels", "number", "raw:int64", "int64", (None,), classes=classes[:80], of="boxes")
    schema = Schema((Field("key", "text", "text"), Field("image", "image", "encoded"), label, boxes, box_labels))
    keys = [b"train/n%03d/img_%07d.jpg" % (at % 1000, at) for at in range(samples)]
    counts = random.poisson(BOXES, samples).astype("<u4")
    rows = int(counts.sum())
    arrays: dict[str, Any] = {
        "keys": np.frombuffer(b"".join(keys), np.uint8),
        "key_ends": np.cumsum(list(map(len, keys)), dtype="<u8"),
        "key_order": np.argsort(np.array(keys)).astype("<u8"),
        "size-image": random.integers(100, 1000, (samples, 2)).astype("<u4"),
        "number-label": random.integers(0, len(classes), samples),
        "count-boxes": counts,
        "count-box_labels": counts,
        "box_size-boxes": random.random((rows, 2), np.float32) * 300,
        "row_values-box_labels": random.integers(0, 80, rows),
    }
    return PackColumns(schema, Index(arrays, schema, samples, "benchmark"))


def main() -> None:
    args = base.arguments(__doc__ or "", samples=1_000_000, rounds=9)
    made = columns(args.samples)

    def milliseconds(condition: str) -> float:
        started = time.perf_counter()
        parse(condition).rows(made)
        return (time.perf_counter() - started) * 1e3

    runs = {name: lambda condition=condition: milliseconds(condition) for name, condition in CONDITIONS.items()}
    found = base.interleaved(runs, args.rounds)
    rows = {name: base.spread(times, "ms", 1) for name, times in found.items()}
    figures = {f"{name} ms": statistics.median(times) for name, times in found.items()}
    base.report(f"filters over {args.samples} samples  (wanted: < 100 ms)", rows, figures, args)


if __name__ == "__main__":
    main()
