"""The demo of the README: what it compares a pack with reads the folders that packer reads."""

import runpy
from pathlib import Path

from packer.conversion.source_spec import SourceSpec
from tests.support import source_trees

DEMO = Path(__file__).parents[1] / "scripts/demo.py"


def test_the_loader_without_packer_reads_every_sample(tmp_path: Path) -> None:
    loader = runpy.run_path(str(DEMO))["FolderDataset"]
    for root, names in (
        (source_trees.photos(tmp_path / "photos"), None),
        (source_trees.cornell(tmp_path / "cornell"), {"pcd0100r.png", "pcd0100d.tiff"}),
    ):
        source, _ = SourceSpec().open(root)
        dataset = loader(source)
        samples = [dataset[index] for index in range(len(dataset))]
        assert all(samples)
        assert names is None or names == {*samples[0]}
