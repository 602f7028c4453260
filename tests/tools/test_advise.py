"""packer advise: its arithmetic exactly, what it says, and that the lines that it prints work when they are pasted."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from packer import synthetic
from packer.cli import main
from packer.errors import BadInput, InvalidRequest, StorageError
from packer.files.page_cache import Residency
from packer.geometry.parsing import parse
from packer.tools import packing_advice as advising
from packer.tools import packing_trial as trials
from packer.tools.packing_advice import Advice, Question, advise, free_target
from packer.tools.packing_candidates import (
    Candidate,
    Prediction,
    Speeds,
    Trial,
    WholeSet,
    candidates,
    predict,
    recommended,
)
from packer.tools.packing_trial import GRASPS, PHOTOS, SourceSample, measure
from tests.support import source_trees
from tests.support.command_line import called, run, run_with_torch
from tests.support.conversions import opened, packed
from tests.support.machine_files import made_up
from tests.support.source_trees import photos

WHOLE = WholeSet(samples=1000, bytes=200_000_000, extras_bytes=5_000)
SPEEDS = Speeds(write=300e6, read=400e6, free_bytes=20_000_000_000, memory_bytes=10_000_000_000, source=100e6)


def trial(rate: float = 500.0, growth: float = 2.0, **candidate: Any) -> Trial:
    """A trial of samples of 200 kB each."""
    how = {"format": "lmdb", "codec": "raw"} | candidate
    return Trial(Candidate(**how), rate, growth, encode_seconds=0.001, samples=64)


# ---- the arithmetic


def test_what_fits_in_memory_or_is_never_cold_is_as_fast_as_its_trial() -> None:
    found = predict(trial(), WHOLE, SPEEDS)
    assert found.rate == 500.0
    assert found.pack_bytes == 400_005_000
    assert (found.fits_memory, found.fits_disk) == (True, True)
    assert predict(trial(), WHOLE, replace(SPEEDS, read=None, memory_bytes=1)).rate == 500.0


def test_what_does_not_fit_waits_for_its_missing_share_in_every_epoch() -> None:
    whole = replace(WHOLE, extras_bytes=0)
    slow = Speeds(write=300e6, read=40e6, free_bytes=399_999_999, memory_bytes=100_000_000)
    found = predict(trial(), whole, slow)
    assert found.rate == pytest.approx(1 / (0.75 * 400_000 / 40e6), rel=1e-12)  # three quarters of each come from disk
    assert (found.fits_memory, found.fits_disk) == (False, False)


@pytest.mark.parametrize(
    ("speeds", "seconds"),
    [
        (replace(SPEEDS, source=None, write=1e12), 1.0),  # encoding, 1 ms a sample
        (replace(SPEEDS, source=50e6), 4.0),  # 200 kB a sample arrive
        (replace(SPEEDS, write=10e6), 40.0),  # 400 kB a sample leave
    ],
)
def test_the_slowest_of_reading_encoding_and_writing_decides_how_long_packing_takes(
    speeds: Speeds, seconds: float
) -> None:
    assert predict(trial(), WHOLE, speeds).convert_seconds == pytest.approx(seconds, rel=1e-12)


def predictions(*trials: Trial) -> list[Prediction]:
    return [predict(one, WHOLE, SPEEDS) for one in trials]


def test_of_those_nearly_as_fast_the_smallest_is_recommended_and_none_that_loses_or_does_not_fit() -> None:
    found = predictions(
        trial(1000, 4.0), trial(950, 2.0, format="hdf5"), trial(901, 1.95, format="pth"), trial(899, 0.1)
    )
    assert recommended(found) is found[1]
    found = predictions(trial(900, loses=True), trial(700, 200.0), trial(100))
    assert recommended(found) is found[2]
    assert recommended(found[:2]) is None


# ---- the disk, with a clock that goes on by half a second whenever it is read


class Ticking:
    """A clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def test_speeds_are_bytes_by_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").mkdir()
    files = [tmp_path / "files" / str(number) for number in range(3)]
    for path in files:
        path.write_bytes(b"x" * 1000)
    rate = (64 << 20) / 0.5
    for share, is_cold in ((0, True), (3000, False), (None, False)):
        monkeypatch.setattr(trials, "drop", lambda _, share=share: Residency(share, 3000))
        found = measure(tmp_path, files, memory_bytes=7, threads=2, clock=Ticking())
        wanted = (rate, 6000.0) if is_cold else (None, None)
        assert (found.write, found.memory_bytes, (found.read, found.source)) == (rate, 7, wanted)
    assert measure(tmp_path, [], memory_bytes=7, threads=2).source is None
    assert [path.name for path in tmp_path.iterdir()] == ["files"]


def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "free_bytes", lambda _: 1000)
    with pytest.raises(StorageError, match="1,000 bytes"):
        measure(tmp_path, [], memory_bytes=0, threads=1)


# ---- what is tried


def keys(groups: list[list[Candidate]]) -> list[tuple[str, str | None, bool, tuple[str, ...]]]:
    return [(group[0].codec, group[0].size, group[0].loses, tuple(one.format for one in group)) for group in groups]


def test_lossy_images_are_tried_as_they_are_as_numbers_and_as_jpeg(tmp_path: Path) -> None:
    common = ("lmdb", "hdf5", "pth")
    groups = candidates(opened(photos(tmp_path / "photos")), [None, "16", "8"])
    assert keys(groups) == [
        ("kept", None, False, common),
        ("raw", None, False, common),
        ("bmp", None, False, ("bmp",)),
        ("jpeg:95", "16", False, common),
        ("raw", "16", False, common),
        ("bmp", "16", False, ("bmp",)),
        ("jpeg:95", "8", False, common),
        ("raw", "8", False, common),
        ("bmp", "8", False, ("bmp",)),
        ("jpeg:95", None, True, common),
        ("ycc420", None, True, common),
        ("ycc420", "16", True, common),
        ("ycc420", "8", True, common),
    ]
    asked = {(group[0].codec, group[0].size): group[0].codecs for group in groups}
    assert asked["jpeg:95", "16"] == ()  # what convert does anyway is not asked for
    assert asked["raw", "16"] == asked["raw", None] == (("image", "raw"),)


def test_lossless_images_become_jpeg_only_with_a_mark(tmp_path: Path) -> None:
    groups = candidates(opened(source_trees.cornell(tmp_path / "cornell")), [None, "16"])
    found = {(group[0].codec, group[0].size): group[0] for group in groups}
    assert [key for key, one in found.items() if one.loses] == [
        (codec, size) for size in (None, "16") for codec in ("jpeg:95", "ycc420")
    ]
    assert found["raw", "16"].codecs == ()
    assert found["png", "16"].codecs == (("rgb", "png"),)
    assert found["raw", None].codecs == (("rgb", "raw"), ("depth", "raw"))


def test_a_line_is_quoted_for_a_shell() -> None:
    how = Candidate("hdf5", "jpeg:95", "64x48", (("rgb", "jpeg:95"),))
    line = how.line(Path("-odd dir/it's"), Path("b.pack"), source_words=["--label-column", "its name"])
    assert shlex.split(line) == [
        *("packer", "convert", "./-odd dir/it's", "b.pack", "--label-column", "its name", "--to", "hdf5"),
        *("--codec", "rgb=jpeg:95", "--resize", "64x48"),
    ]


def test_the_pack_gets_a_name_that_is_free_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "set/inner").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert free_target(tmp_path / "set") == free_target(Path("../set")) == Path("set.pack")
    Path("set.pack").mkdir()
    assert free_target(tmp_path / "set") == Path("set-2.pack")
    monkeypatch.chdir(tmp_path / "set/inner")  # a pack may not lie inside its source
    assert free_target(Path("..")) == tmp_path / "set.pack"
    monkeypatch.chdir(tmp_path / "set")
    assert free_target(Path(".")) == tmp_path / "set.pack"


def test_the_whole_is_counted_and_sizes_fit_the_geometry(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", 20, height=100, width=200)
    sampling = SourceSample(opened(root))
    assert sampling.whole == WholeSet(20, sum(path.stat().st_size for path in root.rglob("*.jpg")))
    assert sampling.usual() == PHOTOS
    assert len(sampling.few) == 20
    assert sorted(sampling.files) == sorted(root.rglob("*.jpg"))
    assert sampling.sizes(parse("RandomResizedCrop(28)"), None) == [None, "32"]
    assert sampling.sizes(parse("RandomResizedCrop(224)"), None) == [None]
    assert sampling.sizes(parse("Resize((400, 400))"), ["64", "20x10"]) == [None, "64", "20x10"]


def test_only_sets_with_grasps_are_measured_with_views_of_grasps(tmp_path: Path) -> None:
    synthetic.load("coco")(tmp_path / "coco", samples=4, threads=1)
    assert SourceSample(opened(tmp_path / "coco")).usual() == PHOTOS
    assert SourceSample(opened(source_trees.cornell(tmp_path / "cornell"))).usual() == GRASPS


def test_large_images_are_tried_with_fewer_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "photos", 20, height=10, width=10)
    monkeypatch.setattr("packer.tools.packing_trial._PIXEL_BYTES", 2000)
    assert len(SourceSample(opened(root)).few) == 6
    monkeypatch.setattr("packer.tools.packing_trial._PIXEL_BYTES", 1)
    assert len(SourceSample(opened(root)).few) == 4


# ---- what it says


def advice(tmp_path: Path, *trials: Trial, **more: Any) -> Advice:
    found = predictions(*trials)
    given: dict[str, Any] = {
        "question": Question(tmp_path / "set"),
        "geometry": PHOTOS,
        "whole": WHOLE,
        "now": 100.0,
        "speeds": SPEEDS,
        "target": Path("set.pack"),
        "predictions": found,
        "best": recommended(found),
    }
    return Advice(**(given | more))


def test_the_table_and_the_sentence(tmp_path: Path) -> None:
    text = advising.text(advice(tmp_path, trial(), trial(250, 0.5, codec="jpeg:95", loses=True)))
    assert text[1:3] == [
        "Disk of set.pack: 20.0 GB free, writes 300 MB/s, reads 400 MB/s cold (blocks of 256 KiB)",
        "Source: 1000 samples, 0.200 GB; its files are read at 100 MB/s cold",
    ]
    assert [line.split() for line in text[5:8]] == [
        ["source", "as", "it", "is", "100", "0.200"],
        ["lmdb", "raw", "as", "it", "is", "500", "0.400", "2", "s", "yes", "<-"],
        ["lmdb", "jpeg:95*", "as", "it", "is", "250", "0.100", "2", "s", "yes"],
    ]
    assert text[-3:] == [
        "Recommended: lmdb, raw, size as it is: 500 samples/s, 5.0 times the source as it is (100); 0.400 GB, "
        "fits in memory.",
        "Paste:",
        f"  packer convert {tmp_path}/set set.pack --to lmdb",
    ]


def test_sets_with_grasps_are_told_of_the_presets(tmp_path: Path) -> None:
    assert not any("--preset" in line for line in advising.text(advice(tmp_path, trial())))
    text = advising.text(advice(tmp_path, trial(), has_grasps=True))
    assert text[-1] == f"  packer convert {tmp_path}/set set.pack --preset ggcnn"


def test_what_was_not_possible_is_said(tmp_path: Path) -> None:
    bad = replace(trial(500, 200.0), skipped=("a.jpg: cannot decode",))
    found = advice(tmp_path, bad, now=None, speeds=replace(SPEEDS, source=None), left_out=("bmp, 64: no time left",))
    assert found.best is None
    text = advising.text(found)
    assert "1 of 65 samples cannot be packed, such as a.jpg: cannot decode; convert lists all of them" in "\n".join(
        text
    )
    assert "Not tried: bmp, 64: no time left" in text
    assert text[-1].startswith("No advice: ")
    assert json.loads(json.dumps(advising.document(found)))["predictions"][0]["fits_disk"] is False


def test_what_gains_nothing_is_said_to(tmp_path: Path) -> None:
    assert "That is hardly faster than the source as it is." in advising.text(advice(tmp_path, trial(), now=480.0))
    assert advising.text(advice(tmp_path))[-1] == "No advice: no way could be tried, see above."


# ---- the command


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pack would go to the current folder, whose disk is measured."""
    monkeypatch.chdir(tmp_path)


def advised(*words: Any) -> tuple[Any, dict[str, Any]]:
    """The command with --json: what it did, and the figures."""
    done = run_with_torch("advise", *words, "--json")
    return done, json.loads(done.stdout) if done.returncode == 0 else {}


def size_of(pack: Path) -> int:
    return sum(path.stat().st_size for path in pack.rglob("*") if path.is_file())


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that everything is tried within its time on any machine."""
    monkeypatch.setattr(trials, "_MOST_TURNS", 1)
    monkeypatch.setattr(trials, "_TURN_S", (0.01, 0.01))


@pytest.mark.full
@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("kind", ["photos", "cornell", "pack"])
def test_every_line_works_when_it_is_pasted_and_gives_a_pack_of_the_size_that_was_foretold(
    tmp_path: Path, kind: str
) -> None:
    root = Path("it's a set")
    if kind == "cornell":
        source_trees.cornell(root)
    else:
        photos(root, 40, height=90, width=120)
    if kind == "pack":
        packed(root, tmp_path / "one.pack")
        root = Path("one.pack")
    before = sorted(tmp_path.rglob("*"))
    question = Question(root, geometry="Resize((24, 24))", sizes=("48", "40x30"), seconds=300.0)
    found = advise(question, say=click.echo)
    assert sorted(tmp_path.rglob("*")) == before  # nothing is left behind
    assert list(found.left_out) == []
    assert found.best is not None
    assert {one.candidate.size for one in found.predictions} == {None, "48", "40x30"}
    assert found.speeds.source is None or kind != "pack"
    for one in found.predictions:
        words = shlex.split(found.line(one))
        assert words[:4] == ["packer", "convert", str(root), "one-2.pack" if kind == "pack" else f"{root}.pack"]
        main(words[1:], standalone_mode=False)
        assert size_of(Path(words[3])) == pytest.approx(one.pack_bytes, rel=0.1), one.candidate
        Path(words[3]).rename(tmp_path / f"{one.candidate.format} {one.candidate.codec} {one.candidate.size}")


@pytest.mark.full
def test_the_recommended_line_runs_in_a_shell(tmp_path: Path) -> None:
    photos(tmp_path / "a set", 12)
    done = run_with_torch("advise", tmp_path / "a set", "--seconds", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-2] == "Paste:"
    assert run(*shlex.split(lines[-1])[1:]).returncode == 0
    assert (tmp_path / "a set.pack/packer.json").is_file()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["train/a/0.png", "train/b/0.png", "val/a/0.png"], ["--folders", "split/class"]),
        (["0.png", "1.png", "metadata.csv"], ["--label-column", "the class"]),
        (["0.png", "0_mask.png", "1.png", "1_mask.png"], ["--sidecar", "mask=_mask.png:mask"]),
    ],
)
def test_options_that_select_the_source_are_those_of_convert(
    tmp_path: Path, names: list[str], words: list[str]
) -> None:
    files: dict[str, bytes | str] = {name: source_trees.image(0) for name in names}
    files |= {name: source_trees.mask(0) for name in names if "_mask" in name}
    if "metadata.csv" in names:
        files["metadata.csv"] = "file_name,the class\n0.png,a\n1.png,b\n"
    root = source_trees.write(tmp_path / "set", files)
    words = ["--from", "table", *words] if "metadata.csv" in names else words
    done = called("advise", root, *words, "--seconds", "1")
    assert done.exception is None, done.output
    line = shlex.split(done.stdout.splitlines()[-1])
    assert line[4 : 4 + len(words)] == words
    assert called(*line[1:]).exception is None


def test_the_help_has_the_options_of_the_source() -> None:
    assert "--folders" not in called("advise", "--help").stdout.partition("Example")[0]
    assert "--folders" in called("advise", "--from", "folder", "--help").stdout.partition("Example")[0]


def test_a_set_of_nothing_but_bad_samples_is_an_error(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", 12)
    for path in root.rglob("*.jpg"):
        path.write_bytes(b"\xff\xd8nothing")
    assert advised(root, "--seconds", "2")[0].returncode == BadInput.exit_code


@pytest.mark.full
def test_bad_samples_are_told(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", 12)
    first = min(root.rglob("*.jpg"))
    first.write_bytes(b"\xff\xd8nothing")
    done, found = advised(root, "--seconds", "30")  # enough for each codec on all samples
    assert done.returncode == 0, done.stderr
    assert f"such as {first.relative_to(root)}" in done.stderr
    assert {row["trial_samples"] for row in found["predictions"]} == {11}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent"], "absent: does not exist"),
        (["photos", "--geometry", "Foo()"], "geometry 'Foo()'"),
        (["photos", "--size", "big"], "resize 'big': expected N"),
    ],
)
def test_wrong_wishes_are_refused_in_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    photos(tmp_path / "photos", 4)
    refused = called("advise", tmp_path / words[0], *words[1:]).exception
    assert isinstance(refused, InvalidRequest)
    assert said in str(refused)
    assert "\n" not in str(refused)


def test_trials_lie_on_the_disk_where_shared_memory_has_no_room(tmp_path: Path) -> None:
    photos(tmp_path / "photos", 6)
    machine = made_up(tmp_path / "machine", available=1 << 20)
    told: list[str] = []
    found = advise(Question(tmp_path / "photos", sizes=(), seconds=1.0), say=told.append, machine=machine)
    assert {one.candidate.size for one in found.predictions} == {None}
    assert found.speeds.memory_bytes == 0
    assert not any(one.fits_memory for one in found.predictions)
    assert "trying kept, as it is" in told


def test_without_time_only_the_first_group_is_tried_and_the_others_are_named(tmp_path: Path) -> None:
    photos(tmp_path / "photos", 6)
    found = advise(Question(tmp_path / "photos", seconds=1e-3), say=click.echo)
    assert {one.candidate.codec for one in found.predictions} == {"kept"}
    assert all(line.endswith("no time left; --seconds gives more") for line in found.left_out)
    assert found.best is not None
