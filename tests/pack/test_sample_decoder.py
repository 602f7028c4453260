"""Sample decoder: values come from the index where it contains them, and are those of the parts."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.geometry import BoxRule, Geometry, Resize
from packer.pack.manifest import Manifest
from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from packer.pack.sample_index import Index
from packer.schema import PIXEL_KINDS
from scripts import make_golden
from tests.support import annotated_source, built_packs
from tests.support.annotated_source import AnnotatedSource
from tests.support.sample_digests import digest_of, same

TEXTS = ("key", "title", "notes")


def test_texts_are_read_without_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_golden.GOLDEN / "version-2/pack"
    with closing(Pack(folder)) as pack:
        monkeypatch.setattr(pack, "parts", None)
        decoder = SampleDecoder(pack, TEXTS)
        assert decoder.stored == []
        assert [decoder.sample(index) for index in range(3)] == [
            {"key": "b/zero", "title": "", "notes": ""},
            {"key": "a/one", "title": "a cup", "notes": "note "},
            {"key": "two", "title": "b\udcff \N{SNOWMAN}", "notes": "note note "},
        ]


def test_texts_of_version_1_are_read_from_the_parts(tmp_path: Path) -> None:
    with closing(Pack(make_golden.GOLDEN / "lmdb/pack")) as pack:
        assert SampleDecoder(pack, ("key", "more", "label")).stored == ["more"]


@pytest.mark.parametrize(("geometry", "boxes"), [(None, None), (Resize((80, 120)), BoxRule(clip=True))])
def test_values_of_any_kind_in_the_index_are_those_of_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, geometry: Geometry | None, boxes: BoxRule | None
) -> None:
    packer.convert(AnnotatedSource(annotated_source.small_set(tmp_path / "set")), tmp_path / "pack")
    records = built_packs.values(tmp_path / "pack")

    def all_samples() -> tuple[list[Any], str, list[str]]:
        dataset = packer.open(tmp_path / "pack", geometry=geometry, boxes=boxes)
        samples = [dataset[index] for index in range(len(dataset))]
        return samples, digest_of(packer.Loader(dataset, 2 if geometry else 1)), dataset.sample_decoder().stored

    expected, batches, stored = all_samples()
    own = Index.open

    def opened(folder: Path, manifest: Manifest) -> Index:
        """The index, with the values of all fields but images and numbers."""
        arrays = dict(own(folder, manifest).arrays)
        for field in manifest.schema:
            if field.name != "key" and field.kind not in PIXEL_KINDS and not field.is_column:
                values = [record[field.name] for record in records]
                arrays[f"values-{field.name}"] = np.frombuffer(b"".join(values), np.uint8)
                arrays[f"value_ends-{field.name}"] = np.cumsum([len(value) for value in values]).astype("<u8")
        return Index(arrays, manifest.schema, manifest.samples, folder)

    monkeypatch.setattr(Index, "open", opened)
    samples, found, images = all_samples()
    assert set(images) < set(stored)
    assert all(same(sample, other) for sample, other in zip(samples, expected, strict=True))
    assert found == batches
