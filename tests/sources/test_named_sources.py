"""The classes of packer.sources: a data set with the options of its source, for packer.convert."""

import pickle
from pathlib import Path

import pytest

import packer
from packer import sources
from packer.errors import InvalidRequest, WrongType
from packer.sources._option_table import OPTIONS
from tests.support import source_trees
from tests.support.conversions import digest


@pytest.mark.parametrize("kind", sources.names())
def test_every_source_has_a_class_that_lists_its_options(kind: str) -> None:
    name = "".join(map(str.capitalize, kind.split("-")))
    maker = getattr(packer.sources, name)
    assert maker is getattr(sources, name) and name in dir(sources)
    options = {each for each, option in OPTIONS.items() if option.parameter in sources.load(kind).Source.defaults()}
    assert all(f"\n    {each}: " in maker.__doc__ for each in options)
    with pytest.raises(WrongType, match=f"{name}: colour=: .*follow_links"):
        maker("folder", colour=1)


def test_convert_makes_the_pack_of_the_same_options(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    named = packer.sources.Cornell(str(root), depth_from="none")
    assert repr(named) == f"packer.sources.Cornell({str(root)!r}, depth_from='none')"
    packer.convert(root, tmp_path / "a.pack", kind="cornell", depth_from="none", bad_labels="skip")
    packer.convert(pickle.loads(pickle.dumps(named)), tmp_path / "b.pack", bad_labels="skip")
    assert digest(tmp_path / "a.pack") == digest(tmp_path / "b.pack")
    with pytest.raises(InvalidRequest, match="kind='folder'.*leave it out"):
        packer.convert(named, tmp_path / "c.pack", kind="folder")


def test_what_is_no_source_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = sources.Nothing
