"""The documentation is complete, and its examples run."""

import contextlib
import fcntl
import inspect
import json
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

import packer
from packer import geometry, synthetic
from packer.cli import main, registry
from packer.errors import InvalidRequest, PackerError
from packer.pack import manifest as manifests
from tests.support import source_trees, warm_python
from tests.support.built_packs import flip
from tests.support.command_line import called, run_here
from tests.support.conversions import packed
from tests.support.repository import ROOT, blocks
from tests.support.source_trees import image, photos, write

README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs/commands.md").read_text()


def section(name: str) -> str:
    """The part of docs/commands.md about one command."""
    found = re.search(rf"^## packer {name}\b.*?(?=^## |\Z)", COMMANDS, re.DOTALL | re.MULTILINE)
    assert found, f"docs/commands.md has no section on packer {name}"
    return found[0]


def options_of(name: str) -> set[str]:
    """The options of a command."""
    command = main.get_command(click.Context(main), name)
    assert command is not None, name
    return {text for option in command.params for text in option.opts}


@pytest.mark.parametrize("name", registry.names())
def test_every_documented_option_exists(name: str) -> None:
    """The generated reference contains all options."""
    assert set(re.findall(r"^\| `(--[a-z-]+)", section(name), re.MULTILINE)) <= options_of(name)


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """A folder with small sets of the names that the pages use."""
    source_trees.cornell(tmp_path / "cornell")
    source_trees.write(tmp_path / "jacquard/abc", source_trees.view("0_abc", 1) | source_trees.view("1_abc", 2))
    root = photos(tmp_path / "photos", 12)
    for number, path in enumerate(sorted(photos(tmp_path / "rgbd", 6).rglob("*.jpg"))):
        path.with_name(f"{path.stem}_d.tiff").write_bytes(source_trees.depth(number))
    keys = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.jpg"))]
    (tmp_path / "train.txt").write_text("\n".join(keys[:8]))
    (tmp_path / "val.txt").write_text("\n".join(keys[8:]))
    return tmp_path


SHORT = {"advise": ("--seconds", "2"), "bench": ("--epochs", "1", "--samples", "4")}  # not as long as they may take

PROGRAM = "from packer.cli import run; run()"
APART = ("advise", "bench", "doctor", "info", "profile", "tune")


def runs(page: str, folder: Path) -> int:
    """Run every `packer` line and every Python block, in order; how many there are."""
    ran = 0
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        if kind == "python":
            code = block.replace("num_workers=2", "num_workers=0")
            warm_python.run(code, strict=True, folder=folder)
            ran += 1
            continue
        for line in block.splitlines() if kind != "text" else ():
            words = shlex.split(line, comments=True)
            if words[:1] == ["packer"]:
                words += SHORT.get(words[1], ())
                if words[1] in APART:  # they start processes, or write bytes to the real standard output
                    warm_python.run(PROGRAM, *words[1:], folder=folder)
                elif words[1] == "view" and "-o" not in words:  # serves until it is interrupted
                    with warm_python.started(PROGRAM, *words[1:], "--no-browser", folder=folder) as server:
                        assert server.stdout is not None
                        assert server.stdout.readline().startswith("http://")
                else:
                    with contextlib.chdir(folder):
                        done = run_here(*words[1:])
                    assert done.returncode == 0, (line, done.stderr)
                ran += 1
    return ran


def test_the_readme_runs(sets: Path) -> None:
    assert runs(README.partition("## Install")[2], sets) == 5


@pytest.mark.full
def test_the_page_on_which_command_runs(sets: Path) -> None:
    assert runs((ROOT / "docs/which-command.md").read_text(), sets) == 4


def test_the_page_on_append_runs(sets: Path) -> None:
    photos(sets / "monday", 14)
    assert runs((ROOT / "docs/pack/append.md").read_text(), sets) == 3


def test_the_first_pack_runs(tmp_path: Path) -> None:
    assert runs((ROOT / "docs/get-started/first-pack.md").read_text(), tmp_path) == 11


def test_the_readme_leads_to_the_page_on_which_command() -> None:
    page = (ROOT / "docs/which-command.md").read_text()
    assert "](docs/which-command.md)" in README
    for word in ("classification", "train/", "segmentation", "detection", "grasping", "a pack"):
        assert f"| {word}" in page or f"`{word}`" in page, word


def test_the_first_screen_of_the_readme_has_what_a_visitor_needs() -> None:
    assert len(README.splitlines()) <= 150
    screen = "\n".join(README.splitlines()[:60])
    for text in ("--resize", "pip install", "Linux", "macOS", "GPU", "Use another tool for", "packer.open"):
        assert text in screen, text


# tests/test_training_page.py runs the first; the others need a file and a library that are not here
_ELSEWHERE = ("dataloader", "arrays", "hugging-face")


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "docs/migrate").glob("*.md")))
def test_a_page_on_migrating_runs(tmp_path: Path, name: str) -> None:
    photos(tmp_path / "photos", 12)
    source_trees.efficient_lmdb(tmp_path / "efficient")
    source_trees.tensorpack_lmdb(tmp_path / "tensorpack")
    source_trees.image2lmdb(tmp_path / "image2lmdb")
    folder = {f"{at // 6}/{at:03d}{' a' * (at == 3)}.png": source_trees.image(at) for at in range(12)}
    source_trees.write(tmp_path / "folder", folder)
    source_trees.tfrecord_shards(tmp_path / "tfrecords")
    source_trees.recordio_files(tmp_path / "recordio")
    source_trees.tar_shards(tmp_path / "shards")
    images = {f"image/{number}.jpg": source_trees.image(number, suffix=".jpg") for number in range(3)}
    masks = {f"mask/{number}.png": source_trees.mask(number) for number in range(3)}
    source_trees.write(tmp_path / "duts", images | masks)
    page = (ROOT / f"docs/migrate/{name}.md").read_text()
    if name == "index":
        page = page.replace("tfrecords/", "tfrecords")
    if name in _ELSEWHERE:
        page = ""
    assert runs(page, tmp_path) >= (name not in _ELSEWHERE)


def test_the_page_on_python_objects_runs(tmp_path: Path) -> None:
    assert runs((ROOT / "docs/pack/sources/objects.md").read_text(), tmp_path) == 1


def test_the_page_on_the_writer_runs(tmp_path: Path) -> None:
    """Its Python blocks as one program, in order."""
    found = blocks((ROOT / "docs/pack/writer.md").read_text())
    assert len(found) == 3
    check = 'print([len(packer.open(f"{name}.pack")) for name in ("own", "more", "scenes")])'
    ran = warm_python.run("\n".join([*found, check]), capture=True, folder=tmp_path)
    assert ran.stdout.strip() == "[100, 100, 100]"


def test_every_page_on_migrating_is_in_the_table() -> None:
    page = (ROOT / "docs/migrate/index.md").read_text()
    linked = set(re.findall(r"^\| \[.*?\]\((.*?)\)", page, re.MULTILINE))
    assert linked == {path.name for path in (ROOT / "docs/migrate").glob("*.md")} - {"index.md"}


_TRAINING = ("augment", "boxes", "datasets", "distributed", "frameworks", "gpu", "loader", "mix")


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", _TRAINING)
def test_a_page_on_training_runs(tmp_path: Path, name: str) -> None:
    """Its Python blocks as one program, in order, as the only process of a group."""
    packed(photos(tmp_path / "photos", 12), tmp_path / "photos.pack")
    found = blocks((ROOT / f"docs/train/{name}.md").read_text())
    assert found
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    code = "\n".join(found).replace("num_workers=2", "num_workers=0")
    warm_python.run(code, strict=True, folder=tmp_path, environment={**os.environ, **group})


def test_the_page_on_tools_runs(tmp_path: Path) -> None:
    packed(photos(tmp_path / "photos", 12), tmp_path / "photos.pack")
    (block,) = blocks((ROOT / "docs/check/speed.md").read_text())
    told = warm_python.run(block, capture=True, strict=True, folder=tmp_path)
    assert re.match(r"packer\.monitor: .* waiting \(.* 6 steps in 2 epochs;", told.stdout)
    assert told.stderr == ""  # what report() has told is not told again


def test_the_page_on_selecting_runs(tmp_path: Path) -> None:
    sides = (250, 300)
    files = {f"{name}/{at}.jpg": image(at, suffix=".jpg", width=sides[at]) for name in ("cup", "mug") for at in (0, 1)}
    packed(write(tmp_path / "photos", files), tmp_path / "photos.pack")
    synthetic.load("coco")(tmp_path / "coco", samples=10, threads=2)
    packed(tmp_path / "coco", tmp_path / "coco.pack")
    page = (ROOT / "docs/check/select.md").read_text()
    wrong, message = re.findall(r"^packer ls (\S+) --where \"(width = 256)\"\npacker: (.*)", page, re.MULTILINE)[0][1:]
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        raise called("ls", tmp_path / "photos.pack", "--where", wrong).exception or AssertionError
    assert runs(re.sub(r"^```\n.*\npacker: .*\n```", "", page, flags=re.MULTILINE), tmp_path) == 3


@pytest.mark.full
def test_the_page_on_grasps_runs(tmp_path: Path) -> None:
    """Its Python blocks as one program, in order, on packs that its commands would make."""
    for name, samples in (("cornell", 10), ("jacquard", 5)):
        synthetic.load(name)(tmp_path / name, samples=samples, threads=2)
        resize = "600x600" if name == "jacquard" else None
        packed(tmp_path / name, tmp_path / f"{name}.pack", resize=resize, codecs=(("rgb", "raw"), ("depth", "raw")))
    code = blocks((ROOT / "docs/train/grasp.md").read_text())
    assert len(code) == 3
    code[-1] = re.sub(r"^is_correct_grasp\(.*", lambda found: f"assert {found[0]}", code[-1], flags=re.MULTILINE)
    seeded = ["import torch", "torch.manual_seed(0)", *code]  # a random view may show no whole rectangle
    warm_python.run("\n".join(seeded), strict=True, folder=tmp_path)


def test_the_page_on_grasps_names_every_option() -> None:
    page = (ROOT / "docs/train/grasp.md").read_text()
    rows = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))))
    assert set(inspect.signature(packer.grasp.GraspDataset.__init__).parameters) - {"self", "path"} <= rows


def test_the_page_on_loading_names_every_argument_and_geometry() -> None:
    page = (ROOT / "docs/train/loader.md").read_text() + (ROOT / "docs/train/augment.md").read_text()
    rows = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))))
    arguments = set(inspect.signature(packer.Loader.__init__).parameters) - {"self", "dataset", "unknown"}
    shown = {name for name, value in vars(geometry).items() if inspect.isclass(value) and value is not geometry.View}
    shown -= {"Geometry", "View"}
    assert arguments | {name for name in shown if issubclass(vars(geometry)[name], geometry.Geometry)} <= rows
    for name in shown:
        given = re.search(rf"^\| `{name}` \| `(.*?)`", page, re.MULTILINE)
        assert given, name
        wanted = inspect.signature(vars(geometry)[name]).parameters
        assert re.findall(r"(?:^|, )\*?(\w+)(?==|,|$)", given[1]) == list(wanted), name


def test_files_that_the_documentation_names_exist() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
        for name in re.findall(r"`((?:scripts|tests|benchmarks|packer|docs|examples)/[\w./]+)`", text):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_no_page_holds_the_marks_of_a_merge() -> None:
    for page in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        assert not re.search(r"^(<<<<<<<|=======|>>>>>>>)( |$)", page.read_text(), re.MULTILINE), page.name


def test_versions_agree() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == packer.__version__


def test_the_page_on_clusters_begins_on_one_machine(tmp_path: Path) -> None:
    page = (ROOT / "docs/pack/cluster.md").read_text()
    assert "](docs/pack/cluster.md)" in README
    assert runs(page[: page.index("## Ray on")], tmp_path) == 2


def test_the_page_on_clusters_has_the_bound_of_the_manifest() -> None:
    """How many parts a pack can have: more are refused, and one less is not."""
    (said,) = re.findall(r"([\d,]+) parts \| values", (ROOT / "docs/dev/notes.md").read_text())
    most = int(said.replace(",", ""))
    part = {"bytes": 1 << 31, "name": "part-00000.lmdb", "samples": 21475, "sha256": "0" * 64}
    assert manifests.excess(json.dumps({"parts": [part] * most}).encode()) is None
    assert "values, expected" in str(manifests.excess(json.dumps({"parts": [part] * (most + 1)}).encode()))


TROUBLE = (ROOT / "docs/check/troubleshooting.md").read_text()


@pytest.fixture
def troubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets with damaged files, and a sound pack, in the current folder."""
    synthetic.load("folder")(tmp_path / "photos", samples=24, threads=2, size=None)
    packed(tmp_path / "photos", tmp_path / "photos.pack")
    first, *_, last = sorted((tmp_path / "photos").rglob("*.jpg"))
    first.write_bytes(first.read_bytes()[:2000])
    last.write_text("not an image")
    synthetic.load("coco")(tmp_path / "coco", samples=6, threads=2)
    path = tmp_path / "coco/annotations/instances_train2017.json"
    labels = json.loads(path.read_text())
    labels["annotations"][0]["category_id"] = 999
    path.write_text(json.dumps(labels))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failures(patch: pytest.MonkeyPatch) -> Iterator[Callable[[], object]]:
    """One step for each error class of the page, in the order of the page."""
    yield lambda: called("convert", "photos", "new.pack")
    yield lambda: called("convert", "photos", "photos.pack")
    yield lambda: called("info", "photos")
    with patch.context() as absent:
        absent.setitem(sys.modules, "starlette", None)
        yield lambda: called("view", "photos.pack")
    yield lambda: called("view", "photos.pack", "-o", "photos.png", "--key", "cat/1.jpg")
    yield lambda: packer.convert("photos", "new.pack", resize="256")  # type: ignore[arg-type]
    yield lambda: list(packer.Loader(packer.open("photos.pack"), 4))
    yield lambda: called("convert", "coco", "coco.pack")
    shutil.copytree("photos.pack", "sound.pack")
    Path("photos.pack/index/keys.npy").unlink()
    yield lambda: called("view", "photos.pack", "-o", "photos.png")
    shutil.rmtree("photos.pack")
    shutil.copytree("sound.pack", "photos.pack")
    part = Path("photos.pack/part-00000.lmdb")
    flip(part, part.read_bytes().index(Path("photos/bowl/bowl_00001.jpg").read_bytes()) + 1000)
    yield lambda: called("view", "photos.pack", "-o", "photos.png")
    shutil.rmtree("photos.pack")
    with patch.context() as full:
        full.setattr("packer.conversion.pack_build.free_bytes", lambda _: 712_704)
        yield lambda: called("convert", "sound.pack", "photos.pack")
    Path(".photos.pack.partial").mkdir(mode=0o700)
    held = os.open(".photos.pack.partial", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    yield lambda: called("convert", "sound.pack", "photos.pack")
    os.close(held)


def without_numbers(text: str) -> str:
    """The text with N for each number and checksum, which depend on the libraries."""
    return re.sub(r"[0-9a-f,]*\d[0-9a-f,]*", "N", text)


def test_the_page_on_troubleshooting_quotes_messages_of_this_code(
    troubles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = re.findall(r"^### (\w+)\n\n```text\n(.*)\n```", TROUBLE, re.MULTILINE)
    found = []
    for fail in failures(monkeypatch):
        try:
            result = fail()
            error = result.exception if isinstance(result, Result) else None
        except PackerError as raised:
            error = raised
        found.append((type(error).__name__, str(error).splitlines()[0]))
    assert [(name, without_numbers(line)) for name, line in found] == [
        (name, without_numbers(line)) for name, line in quoted
    ]
    assert len(found) == 12


@pytest.mark.full
def test_the_commands_of_the_page_on_troubleshooting_run(troubles: Path) -> None:
    shutil.rmtree("photos.pack")
    assert runs(TROUBLE, troubles) == 10


def test_the_page_on_troubleshooting_names_options_that_exist() -> None:
    for line in re.findall(r"`packer ([^`]*)`", TROUBLE):
        name, *words = line.split()
        assert {word for word in words if word.startswith("-")} <= options_of(name), line
