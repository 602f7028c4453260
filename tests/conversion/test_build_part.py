"""One part as a function: of its spec and number alone, in this process and in another one."""

import multiprocessing
import pickle
from dataclasses import replace
from pathlib import Path

from packer.conversion.build_part import BuiltPart, PartSpec, build_part
from packer.conversion.options import ConversionOptions
from packer.conversion.pack_source import PackSource
from packer.conversion.plan import Plan, make_plan
from packer.pack.derived_pack import FolderRecipe
from tests.support.conversions import digest, opened, packed
from tests.support.source_trees import photos


def spec_of(plan: Plan, folder: Path, *, threads: int = 1) -> PartSpec:
    for name in ("pack", "pieces"):
        (folder / name).mkdir(parents=True)
    return PartSpec(plan, folder / "pack", folder / "pieces", threads)


def build_all(pickled: bytes, numbers: list[int]) -> None:
    """As a worker does that knows nothing but what it is sent."""
    spec = pickle.loads(pickled)  # noqa: S301
    for number in numbers:
        build_part(spec, number)


def test_a_spec_is_sent_to_another_process_and_gives_the_same_bytes(tmp_path: Path) -> None:
    packed(photos(tmp_path / "in", 12), tmp_path / "a.pack", part_bytes=4000)
    for kind, source in (("folder", opened(tmp_path / "in")), ("pack", PackSource(FolderRecipe(tmp_path / "a.pack")))):
        plan = make_plan(source, ConversionOptions(part_bytes=4000, resize="16"))
        here, there = (spec_of(plan, tmp_path / kind / name) for name in ("here", "there"))
        numbers = list(range(len(plan.parts)))
        build_all(pickle.dumps(here), numbers)
        child = multiprocessing.get_context("spawn").Process(target=build_all, args=(pickle.dumps(there), numbers))
        child.start()
        child.join()
        assert (child.exitcode, len(numbers) > 1) == (0, True)
        assert digest(here.pack) == digest(there.pack)
        assert digest(here.pieces) == digest(there.pieces)


def test_bad_samples_are_named_and_leave_no_part_or_are_left_out(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    bad = sorted(root.rglob("*.jpg"))[2]
    bad.write_bytes(bad.read_bytes()[:40])
    built: dict[str, BuiltPart] = {}
    for on_error in ("error", "skip"):
        plan = make_plan(opened(root), ConversionOptions(on_error=on_error))  # type: ignore[arg-type]
        built[on_error] = build_part(spec_of(plan, tmp_path / on_error), 0)
        (reason,) = built[on_error].reasons
        assert reason.startswith(str(bad))
    assert built["error"].finished is None
    left = built["skip"].finished
    assert left is not None
    assert (left.part.samples, len(left.skipped)) == (5, 1)
    plan = make_plan(opened(root), ConversionOptions())
    spec = replace(spec_of(plan, tmp_path / "reads"), only_reads=True)
    assert build_part(spec, 0) == (None, built["error"].reasons)
    assert list((tmp_path / "reads/pieces").iterdir()) == []
