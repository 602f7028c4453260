"""Opening a pack of many small samples: time, pickled size, memory."""

import pickle
import resource
import statistics
import sys
import time
import zlib
from pathlib import Path

import base
import numpy as np

from packer import __version__
from packer.datasets.pack_dataset import LMDBDataset
from packer.formats.lmdb import Writer
from packer.pack import manifest as manifests
from packer.pack.manifest import Manifest, Part
from packer.pack.sample_index import ColumnEntries, PartIndex, merge
from packer.schema import Field, Schema


def build(folder: Path, samples: int) -> None:
    """A pack of tiny records, written through packer's own writers (a source of a million files would take an hour)."""
    schema = Schema(
        (
            Field("key", "text", "text"),
            Field("value", "bytes", "encoded"),
            Field("label", "number", "number", "int64", ()),
        )
    )
    folder.mkdir()
    piece, columns = PartIndex(schema), ColumnEntries(schema)
    part = folder / "part-00000.lmdb"
    with Writer(part, schema, payload_bytes=samples * 32) as writer:
        for index in range(samples):
            key = b"sample/%08d" % (index * 7919 % samples)
            record = {"key": key, "value": b"%d" % index, "label": (index % 1000).to_bytes(8, "little")}
            writer.write(record)
            entries = {file: entry for name in record for file, entry in columns.of(name, record[name]).items()}
            piece.add([zlib.crc32(value) for value in record.values()], entries)
        writer.finish()
    piece.save(folder.with_name("piece"))
    index = merge([folder.with_name("piece")], folder, schema)
    parts = (Part(part.name, samples, part.stat().st_size, "0" * 64),)
    manifest = Manifest("lmdb", samples, schema, {}, {"kind": "none"}, parts, index, f"packer {__version__}").sealed()
    (folder / manifests.NAME).write_bytes(manifest.to_bytes())


def main() -> None:
    args = base.arguments(__doc__ or "", samples=1_000_000, rounds=9)
    with base.scratch() as scratch:
        pack = scratch / "many.pack"
        build(pack, args.samples)
        opened, found = [], []
        for _ in range(args.rounds):
            started = time.perf_counter()
            dataset = LMDBDataset(pack)
            first = dataset[args.samples // 2]
            opened.append((time.perf_counter() - started) * 1e3)
            started = time.perf_counter()
            index = dataset.index_of(first["key"])
            found.append((time.perf_counter() - started) * 1e6)
            if index != args.samples // 2:
                sys.exit("index_of found another sample")
            size = len(pickle.dumps(dataset))
            labels = dataset.column("label")
            del dataset
        rows = {
            "open and read one sample": base.spread(opened, "ms", 1) + "  (wanted: < 50)",
            "index_of": base.spread(found, "us", 0),
            "pickled": f"{size} bytes  (wanted: < 65536)",
            "column('label')": f"{labels.nbytes / 1e6:.0f} MB, sum {int(np.sum(labels))}",
            "peak memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB, torch included",
            "pack": f"{sum(path.stat().st_size for path in pack.rglob('*') if path.is_file()) / 1e6:.0f} MB",
        }
    figures = {"open_ms": statistics.median(opened), "index_of_us": statistics.median(found), "pickled_bytes": size}
    base.report(f"a pack of {args.samples} samples", rows, figures, args)


if __name__ == "__main__":
    main()
