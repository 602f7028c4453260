"""Links in the folder of a data set: what is read, what is refused and said, for samples and for files of no sample."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from packer import sources
from packer.cli import main
from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.conversion.source_spec import SourceSpec
from packer.conversion.source_verification import Comparison
from packer.errors import BadInput, BadInputs
from packer.inspect.extraction import extract
from packer.pack import manifest as manifests
from packer.pack.extra_files import ExtraFiles
from packer.sources._trees.folder_tree import LinkLeadsOut, SourceRoot
from packer.tools.measured_workload import Subject
from packer.tools.packing_candidates import candidates
from tests.support import source_trees
from tests.support.command_line import run_here
from tests.support.conversions import digest, opened, packed

JPEG = source_trees.image(1, suffix=".jpg")
OUT = "is a link out of the folder; --follow-links"


def set_of(tmp_path: Path) -> Path:
    """A folder of two classes beside one that is none of its business."""
    source_trees.write(tmp_path / "home", {"secret": b"secret", "deep/photo.jpg": JPEG})
    return source_trees.write(
        tmp_path / "in", {"a/1.jpg": JPEG, "b/2.jpg": source_trees.image(2, suffix=".jpg"), "z.txt": b"list"}
    )


# ---- one file


PATHS: dict[str, tuple[Callable[[Path], object], str | None, str | None]] = {
    # how it comes about, what reading it says without and with follow_links; None: it is read
    "a file": (lambda path: path.write_bytes(b"data"), None, None),
    "a link beside it": (lambda path: path.symlink_to("a/1.jpg"), None, None),
    "an absolute link to a file inside": (lambda path: path.symlink_to(path.parent / "a/1.jpg"), None, None),
    "a link to a link inside": (
        lambda path: (path.with_name("other").symlink_to("a/1.jpg"), path.symlink_to("other")),
        None,
        None,
    ),
    "a link that leads out and back in": (lambda path: path.symlink_to("../home/../in/a/1.jpg"), None, None),
    "a link out": (lambda path: path.symlink_to("../home/secret"), OUT, None),
    "an absolute link out": (lambda path: path.symlink_to(path.parent.parent / "home/secret"), OUT, None),
    "a link inside to a link out": (
        lambda path: (path.with_name("other").symlink_to("../home/secret"), path.symlink_to("other")),
        OUT,
        None,
    ),
    "a link to a folder whose name begins alike": (
        lambda path: (shutil.copytree("home", "in-2"), path.symlink_to("../in-2/secret")),
        OUT,
        None,
    ),
    "a link to nowhere": (lambda path: path.symlink_to("gone"), "leads nowhere", "leads nowhere"),
    "a link out to nowhere": (lambda path: path.symlink_to("../home/gone"), "leads nowhere", "leads nowhere"),
    "a link to itself": (lambda path: path.symlink_to("x.jpg"), "leads to itself", "leads to itself"),
    "a FIFO": (os.mkfifo, "expected a regular file", "expected a regular file"),
    "a link to a FIFO": (
        lambda path: (os.mkfifo(path.with_name("pipe")), path.symlink_to("pipe")),
        "expected a regular file",
        "expected a regular file",
    ),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), OUT, "expected a regular file"),
    "a folder": (os.mkdir, "expected a regular file", "expected a regular file"),
    "nothing": (lambda path: None, "No such file", "No such file"),
}


@pytest.mark.parametrize("follow_links", [False, True])
@pytest.mark.parametrize("what", PATHS)
def test_a_file_is_read_or_it_is_said_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, follow_links: bool
) -> None:
    root = set_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    make, *expected = PATHS[what]
    make(root / "x.jpg")
    folder, reason = SourceRoot(Path("in"), follow_links), expected[follow_links]
    if reason is None:
        data = folder.read("x.jpg")
        assert data == (root / "x.jpg").read_bytes() and folder.status("x.jpg").st_size == len(data)
    else:
        with pytest.raises(BadInput, match=f"^in/x.jpg: .*{reason}"):
            folder.read("x.jpg")


def test_a_file_below_a_folder_that_became_a_link_is_refused(tmp_path: Path) -> None:
    """Somebody changes it between the listing and the reading."""
    root = set_of(tmp_path)
    source = opened(root)
    shutil.rmtree(root / "b")
    (root / "b").symlink_to(tmp_path / "home/deep")
    (tmp_path / "home/deep/photo.jpg").rename(tmp_path / "home/deep/2.jpg")
    with pytest.raises(LinkLeadsOut, match=f"b/2.jpg: {OUT}"):
        source[1]
    (root / "b").unlink()
    (root / "b").symlink_to("a")
    (root / "a/2.jpg").write_bytes(b"inside")
    assert source[1]["image"] == b"inside"


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    root = set_of(tmp_path)
    (tmp_path / "link").symlink_to(root)
    (root / "a/3.jpg").symlink_to(root / "b/2.jpg")
    for path in (root, tmp_path / "link"):
        source = opened(path)
        assert [source.key(row) for row in range(3)] == ["a/1.jpg", "a/3.jpg", "b/2.jpg"]
        assert source[1]["image"] == source[2]["image"]


# ---- samples


@pytest.mark.one_in(32)
@pytest.mark.parametrize("name", sources.names())
def test_a_set_of_links_is_refused_before_anything_is_read_unless_asked(tmp_path: Path, name: str) -> None:
    """As people link their images to a store: every file is a link."""
    store = source_trees.BUILDERS[name](tmp_path / "store")
    root = tmp_path / "in"
    root.mkdir()
    for path in sorted(store.rglob("*")):
        if path.is_dir():
            (root / path.relative_to(store)).mkdir()
        else:
            (root / path.relative_to(store)).symlink_to(path)
    plain = opened(store, name)
    kinds = {"folder": 0, "cornell": 1, "jacquard": 0, "pairs": 0, "ivalab": 0, "graspnet-rect": 0, "grasp-anything": 0}
    if kinds.get(name, 1):  # its table, or the place of its records, is read when the source is made
        with pytest.raises(LinkLeadsOut, match=OUT):
            opened(root, name)
    else:
        with pytest.raises(BadInputs, match=f"{len(plain)} of {len(plain)} samples") as caught:
            packed(root, tmp_path / "out.pack", kind=name)
        assert all(str(reason).count(OUT) == 1 for reason in caught.value.reasons) and caught.value.reasons
        assert not (tmp_path / "out.pack").exists() and not (tmp_path / ".out.pack.partial").exists()
    for path, target, options in ((store, "one", {}), (root, "two", {"follow_links": True})):
        source, _ = SourceSpec(name, options).open(path)
        convert_source(source, tmp_path / target, ConversionOptions())
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


def test_samples_that_are_links_out_are_counted_and_named_or_skipped(tmp_path: Path) -> None:
    root = set_of(tmp_path)
    for number in range(3):
        (root / f"a/out{number}.jpg").symlink_to(tmp_path / "home/deep/photo.jpg")
    (root / "b/gone.jpg").symlink_to("nowhere")
    with pytest.raises(BadInputs, match=f"4 of 6.*\n.*a/out0.jpg: {OUT}"):
        packed(root, tmp_path / "out.pack")
    summary = packed(root, tmp_path / "out.pack", on_error="skip")
    assert [key for key, _ in summary.skipped] == ["a/out0.jpg", "a/out1.jpg", "a/out2.jpg", "b/gone.jpg"]
    assert OUT in summary.skipped[0][1] and "leads nowhere" in summary.skipped[3][1]
    assert summary.samples == 2


def test_a_changed_link_is_another_source(tmp_path: Path) -> None:
    root = set_of(tmp_path)
    (root / "b/3.jpg").symlink_to("gone")
    asked = ConversionOptions(on_error="skip")
    before = make_plan(opened(root), asked).fingerprint
    assert make_plan(opened(root), asked).fingerprint == before
    (root / "b/3.jpg").unlink()
    (root / "b/3.jpg").symlink_to("other")
    assert make_plan(opened(root), asked).fingerprint != before


def test_following_is_recorded_only_where_it_was_asked_for(tmp_path: Path) -> None:
    root = set_of(tmp_path)
    (root / "c").symlink_to(tmp_path / "home/deep")
    with pytest.raises(BadInput, match="link.*: c; --follow-links"):
        opened(root)
    asked = run_here("convert", root, tmp_path / "out.pack", "--follow-links")
    assert asked.returncode == 0, asked.stderr
    manifest = manifests.read(tmp_path / "out.pack")
    assert manifest.options["source"]["options"] == {"follow_links": True}
    assert manifest.schema["label"].classes == ("a", "b", "c")
    assert [*Comparison(tmp_path / "out.pack", root).problems()] == []  # follows, since the pack was made so
    extract(tmp_path / "out.pack", tmp_path / "back")
    assert (tmp_path / "back/c/photo.jpg").read_bytes() == JPEG and not (tmp_path / "back/c").is_symlink()
    (root / "c").unlink()
    request = SourceSpec()
    assert request.to_json(request.open(root)[0])["options"] == {}


def test_sidecars_follow_the_same_rule(tmp_path: Path) -> None:
    root = source_trees.write(tmp_path / "in", {"1.jpg": JPEG, "2.jpg": JPEG, "2.txt": b"two"})
    source_trees.write(tmp_path, {"secret": b"secret"})
    (root / "1.txt").symlink_to("2.txt")
    sidecars = ("text=.txt:text",)
    assert SourceSpec(sidecars=sidecars).open(root)[0][0]["text"] == "two"
    (root / "1.txt").unlink()
    (root / "1.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(LinkLeadsOut, match=f"1.txt: {OUT}"):
        SourceSpec(sidecars=sidecars).open(root)[0][0]
    assert SourceSpec(options={"follow_links": True}, sidecars=sidecars).open(root)[0][0]["text"] == "secret"


def test_a_folder_read_without_packing_follows_the_same_rule(tmp_path: Path) -> None:
    root = set_of(tmp_path)
    (root / "a/out.jpg").symlink_to(tmp_path / "home/deep/photo.jpg")
    for follow_links in (False, True):
        dataset = Subject(root, spec=SourceSpec(options={"follow_links": follow_links})).open()
        if follow_links:
            assert dataset[1]["key"] == "a/out.jpg"
        else:
            with pytest.raises(LinkLeadsOut, match=OUT):
                dataset[1]
    with pytest.raises(BadInputs, match=OUT):
        candidates(opened(root), (None,))


@pytest.mark.parametrize("command", ["convert", "advise", "bench", "tune"])
def test_every_command_that_reads_folders_has_the_option(command: str) -> None:
    shown = CliRunner().invoke(main, [command, "--help"])
    assert "--follow-links" in shown.stdout


# ---- files of no sample


def test_a_link_out_is_no_file_of_no_sample(tmp_path: Path) -> None:
    root = set_of(tmp_path)
    (root / "notes.txt").symlink_to(tmp_path / "home/secret")
    (root / "same.txt").symlink_to("z.txt")
    summary = packed(root, tmp_path / "out.pack")
    manifest = manifests.read(tmp_path / "out.pack")
    assert ExtraFiles(tmp_path / "out.pack", manifest).sizes == {"same.txt": 4, "z.txt": 4}
    assert "1 other file skipped, reached by a link out of the folder: notes.txt; --follow-links" in summary.notes[0]
    assert manifest.source["left_behind"] == {"files": 1, "bytes": 0}
    for path in (tmp_path / "out.pack").rglob("*"):
        assert path.is_dir() or b"secret" not in path.read_bytes()
    convert_source(opened(root, follow_links=True), tmp_path / "all.pack", ConversionOptions())
    assert "notes.txt" in ExtraFiles(tmp_path / "all.pack", manifests.read(tmp_path / "all.pack")).sizes


def test_a_file_of_no_sample_that_becomes_a_link_out_ends_the_run(tmp_path: Path) -> None:
    root = set_of(tmp_path)
    plan = make_plan(opened(root), ConversionOptions())
    (root / "z.txt").unlink()
    (root / "z.txt").symlink_to(tmp_path / "home/secret")
    with pytest.raises(LinkLeadsOut, match=f"z.txt: {OUT}"):
        list(plan.extras.contents(plan.source))
