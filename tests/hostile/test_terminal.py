"""Nothing that a file name or a pack can say acts on a terminal, whatever command meets it and however it ends."""

import io
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from packer import formats
from packer.cli import registry
from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.errors import PackerError, printable
from packer.files.terminal_output import echo, shell_word
from packer.pack import manifest as manifests
from tests.support import built_packs, source_trees
from tests.support.hostile_packs import in_manifest, reseal
from tests.support.terminals import EVIL, EVIL_TEXT, Terminals, harm

FORMATS = formats.names()
Words = tuple[object, ...]


@pytest.fixture(scope="module")
def terminals() -> Iterator[Terminals]:
    with Terminals() as served:
        yield served


# ---- what lies there


def named(name: str, suffix: str = "") -> str:
    """A file name that holds it."""
    return f"{name}{EVIL}{suffix}"


def photos(root: Path, *, damaged: bool = False) -> Path:
    """An image folder: names of classes, images and further files are evil."""
    files: dict[str, bytes | str] = {
        f"{named(kind)}/{named(str(number), '.jpg')}": source_trees.image(number, suffix=".jpg")
        for kind in ("cat", "dog")
        for number in range(2)
    }
    files |= {f"{named('cat')}/{named('all', '.csv')}": EVIL_TEXT, named("loose", ".txt"): EVIL_TEXT}
    if damaged:
        files |= {f"{named('cat')}/{named('cut', '.jpg')}": source_trees.image(9, suffix=".jpg")[:300]}
        files |= {f"{named('dog')}/{named('no', '.png')}": EVIL_TEXT, f"{named('cat')}/{named('0', '.png')}": b""}
    return source_trees.write(root, files)


class Place:
    """A folder with an evil name, and in it sources and packs, sound and damaged ones."""

    def __init__(self, root: Path) -> None:
        self.root = root / named("root")
        self.root.mkdir()
        self._made = 0
        self.source = photos(self.root / named("photos"))
        self.damaged = photos(self.root / named("damaged"), damaged=True)
        self.empty = photos(self.root / named("empty"))
        (self.empty / named("fish")).mkdir()
        self.cornell = source_trees.cornell(self.root / named("cornell"))
        lacking = {**source_trees.scene("0102", 1), "pcd0102cpos.txt": f"1 2\n{EVIL_TEXT} 3\n"}
        source_trees.write(self.cornell / named("03"), lacking)
        self.table = source_trees.cornell(self.root / named("table"))
        source_trees.write(self.table, {"processedData/z.txt": f"0100 1 a b\n0101 {EVIL_TEXT}\n"})
        self.jacquard = source_trees.jacquard(self.root / named("jacquard"))
        view = source_trees.view(f"3_{source_trees.HASH_32}", 1, grasps=f"1;2;{EVIL_TEXT};4\n")
        source_trees.write(self.jacquard / f"Jacquard_Dataset_3{EVIL}" / source_trees.HASH_32, view)
        self.list = self.root / named("list", ".txt")
        self.list.write_text(f"no such\x1b[2J\u202e name\n{EVIL_TEXT}\n", encoding="utf-8")
        self.stage = self.root / named("stage")
        self.stage.mkdir()
        self.pack = self.packed("lmdb")
        self.filled = self.new("filled")
        shutil.copytree(self.pack, self.filled)
        in_manifest(fill)(self.filled)
        self.accepted = accepted(self.filled, self.new())

    def new(self, name: str = "new", suffix: str = "") -> Path:
        """A path that nothing has."""
        self._made += 1
        return self.root / named(f"{name}{self._made}", suffix)

    def copied(self) -> Path:
        """A copy of the pack, which a command may change."""
        target = self.new("copy")
        shutil.copytree(self.pack, target)
        return target

    def packed(self, format: str) -> Path:
        """A pack of the damaged source, made once."""
        target = self.root / named(format)
        if not target.exists():
            source, _ = SourceSpec().open(self.damaged)
            convert_source(source, target, ConversionOptions(to=format, on_error="skip"))
        return target


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


# ---- every text of a manifest


def fill(data: dict[str, Any]) -> None:
    """Something in every member that can hold text."""
    data["incomplete"] = [["key", "lacks a file"]]
    data["source"]["left_behind"] = {"files": 1, "bytes": 2}
    data["options"] |= {"fields": ["image"], "codecs": {"image": "jpeg:95"}, "resize": "8"}
    data["options"]["source"] |= {"splits": {"train": "list.txt"}}


Way = tuple[str | int, ...]


def texts(data: Any, way: Way = ()) -> Iterator[tuple[Way, bool]]:
    """Where texts stand in a JSON value; names of members too, marked True."""
    if isinstance(data, str):
        yield way, False
    for at, inner in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if isinstance(at, str) and way:
            yield (*way, at), True
        yield from texts(inner, (*way, at))


def spoil(data: Any, *, way: Way, is_name: bool) -> None:
    """Put the evil text there."""
    for at in way[:-1]:
        data = data[at]
    if is_name:
        data[f"{way[-1]}{EVIL}"] = data.pop(way[-1])
    else:
        data[way[-1]] = f"{data[way[-1]]}{EVIL}"


def spoiled(pack: Path, target: Path, ways: list[tuple[Way, bool]]) -> Path:
    """The pack with those texts evil, its hashes right."""
    shutil.copytree(pack, target)
    for way, is_name in ways:
        in_manifest(partial(spoil, way=way, is_name=is_name))(target)
    return target


def accepted(pack: Path, scratch: Path) -> list[Way]:
    """Where a manifest may hold an evil text."""
    manifest = json.loads((pack / manifests.NAME).read_bytes())
    found = []
    scratch.mkdir()
    for way in [way for way, is_name in texts(manifest) if not is_name]:
        (scratch / manifests.NAME).write_bytes((pack / manifests.NAME).read_bytes())
        in_manifest(partial(spoil, way=way, is_name=False))(scratch)
        with suppress(PackerError):
            manifests.read(scratch)
            found.append(way)
    return found


# ---- the commands

Lines = Callable[[Place, Path], list[Words]]

# what a command is called with; a pack is any of those above
OF_PACKS: dict[str, Lines] = {
    "info": lambda at, pack: [(pack,), (pack, "--json")],
    "verify": lambda at, pack: [
        *[(pack,), (pack, "--level", "quick"), (pack, "--level", "full", "--json")],
        *[(pack, "--level", "full", "--source", at.source), (pack, "--subset", EVIL), (pack, "--expect", EVIL)],
    ],
    "index": lambda at, pack: [(pack, "--check"), (pack, "--check", "--json")],
    "extract": lambda at, pack: [
        *[(pack, at.new()), (pack, at.new(), "--skip-bad", "--only-exact")],
        *[(pack, at.new(), "--json"), (pack, at.source)],
    ],
    "view": lambda at, pack: [
        *[(pack, "-o", at.new("v", ".png")), (pack, "-o", at.new("v", ".html"))],
        *[(pack, "-o", at.new("v", ".html"), option, EVIL) for option in ("--key", "--fields")],
        *[(pack, "-o", at.new()), (pack, "-o", at.new() / "x.png")],
    ],
    "stats": lambda at, pack: [
        *[(pack,), (pack, "--json"), (pack, "--output", at.new()), (pack, "--output", at.root)],
        *[(pack, "--subset", EVIL)],
    ],
    "stage": lambda at, pack: [
        *[(pack, "--warm"), (pack, "--to", at.stage), ("--list", "--to", at.stage)],
        *[(pack, "--release", "--to", at.stage), (pack, "--to", at.list), (pack, "--parts", EVIL)],
        *[(pack, "--leave-free", EVIL), (pack, "--to", at.stage, "--keep", "99.9999%")],
    ],
    "convert": lambda at, pack: [
        *[(pack, at.new()), (pack, at.new(), "--dry-run"), (pack, at.new(), "--json"), (pack, at.source)],
        *[(pack, at.new(), "--resize", "8"), (pack, at.new(), "--codec", "image=jpeg:90", "--on-error", "skip")],
        *[(pack, at.pack, "--overwrite"), (pack, at.new(), f"--split=a={at.list}")],
    ],
    "ls": lambda at, pack: [
        *[(pack,), (pack, "--json"), (pack, "--where", f"{EVIL!r} in key"), (pack, "--where", EVIL)],
        *[(pack, "--split", EVIL), (pack, "--sort", EVIL), (pack, "--columns", EVIL)],
    ],
    "collect": lambda at, pack: [
        *[(at.new(), pack), (at.new(), pack, "--where", EVIL), (at.new(), pack, "--keys", at.list)],
        *[(at.new(), pack, "--drop", at.list), (at.new(), pack, "--column", f"{EVIL}={at.list}"), (at.pack, pack)],
        *[(at.new(), pack, "--prefix", EVIL), (at.new(), pack, "--rename", EVIL), (at.new(), pack, "--sample", EVIL)],
    ],
    "profile": lambda at, pack: [(pack, "--samples", "2"), (pack, "--fields", EVIL)],
}
OF_SOURCES: dict[str, Lines] = {
    "convert": lambda at, source: [
        *[(source, at.new()), (source, at.new(), "--on-error", "skip"), (source, at.new(), "--dry-run")],
        *[(source, at.new(), "--from", kind) for kind in ("folder", "cornell", "jacquard")],
        *[(source, at.new(), "--json"), (source, at.new(), "--extras", "1"), (source, at.pack), (source, at.source)],
        *[(source, at.new(), f"--split={named('a')}={at.list}"), (source, at.new(), f"--split=a={at.list}")],
        *[(source, at.new(), f"--sidecar=mask={EVIL}_mask.png:mask"), (source, at.new(), "--codec", f"image={EVIL}")],
        *[(source, at.new(), option, EVIL) for option in ("--fields", "--codec", "--resize", "--from", "--part-size")],
        *[(source, at.new(), "--folders", "none"), (source, at.new(), "--preset", "ggcnn")],
        *[(source, source / "pack"), (source, at.new() / "no" / "pack"), (at.new(), at.new())],
        (source, at.new(), "--on-error", "skip", "--codec", "image=jpeg:90", "--resize", "8"),
    ],
    "append": lambda at, source: [
        *[(at.copied(), at.pack), (at.copied(), source), (at.copied(), source, "--json"), (source, source)],
        *[(at.copied(), source, "--from", EVIL), (at.copied(), at.new()), (at.new(), source)],
    ],
}
# those that measure for seconds
SLOW: dict[str, Lines] = {
    "advise": lambda at, source: [(source, "--seconds", "1"), (source, "--geometry", EVIL), (source, "--size", EVIL)],
    "bench": lambda at, source: [
        (source, "--workers", "0", "--epochs", "1", "--batch-size", "2", "--geometry", "Resize((8, 8))"),
        (source, "--workers", "1", "--epochs", "1", "--batch-size", "2"),
        *[(source, "--geometry", EVIL), (source, "--fields", EVIL), (source, "--workers", EVIL)],
    ],
    "tune": lambda at, source: [
        *[(source, "--workers", "0-1", "--epochs", "1", "--rounds", "1", "--steps", "2", "--batch-size", "2")],
        *[(source, "--step", EVIL), (source, "--step", f"{EVIL}:x"), (source, "--transform", f"os:{EVIL}")],
        (
            source,
            "--workers",
            "1",
            "--epochs",
            "1",
            "--rounds",
            "1",
            "--geometry",
            "Resize((8, 8))",
            "--batch-size",
            "2",
        ),
    ],
    "profile": lambda at, source: [(source, "--transform", f"os:{EVIL}"), (source, "--geometry", EVIL)],
}
OF_NOTHING: dict[str, Lines] = {
    "doctor": lambda at, _: [(), ("--json",)],
    "formats": lambda at, _: [(), ("--json",)],
    "synth": lambda at, _: [
        *[("folder", at.new(), "--samples", "2"), ("folder", at.source), (EVIL, at.new())],
        *[("folder", at.new(), "--size", EVIL), ("cornell", at.new() / "no" / "folder", "--samples", "1")],
    ],
}


def test_every_command_is_tried() -> None:
    assert {*OF_PACKS, *OF_SOURCES, *SLOW, *OF_NOTHING} == set(registry.names())


IS_RAW = ("--to", "--warm")  # in a pipe: what another program reads, see docs/commands.md


def calm(terminals: Terminals, name: str, lines: list[Words], *, whole: bool = True) -> set[int]:
    """Exit codes, after a look at what the lines put on a terminal and, unless only the first is tried, into a pipe."""
    codes = set()
    for words in lines if whole else lines[:1]:
        for piped in (False, True) if whole else (False,):
            code, out, err = terminals.run((name, *words), piped=piped)
            codes.add(code)
            shown = err if piped and set(IS_RAW) & set(words) else out + err
            assert not harm(shown), (name, words, code, harm(shown), shown)
            assert b"Traceback" not in shown, (name, words, shown)
    return codes


each_way = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.full)])
IMPORTS_TORCH = ("bench", "doctor", "profile", "tune")  # a second or two each


def each_of(names: Iterable[str]) -> pytest.MarkDecorator:
    """By name; the whole sweep alone has those that take long to start."""
    long = pytest.mark.full
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=long if name in IMPORTS_TORCH else ()) for name in names]
    )


@each_way
@each_of(registry.names())
def test_no_word_of_a_command_line_acts(terminals: Terminals, place: Place, name: str, whole: bool) -> None:
    arguments = {"synth": ("folder",), "doctor": (), "formats": ()}.get(name, ())
    lines: list[Words] = [(*arguments, EVIL, EVIL, EVIL), (*arguments, f"--{EVIL}"), (*arguments, place.list)]
    assert calm(terminals, name, lines, whole=whole) == {2}


@each_way
@each_of(OF_NOTHING)
def test_no_path_acts(terminals: Terminals, place: Place, name: str, whole: bool) -> None:
    calm(terminals, name, OF_NOTHING[name](place, place.source), whole=whole)


@each_way
@each_of(OF_PACKS)
def test_nothing_that_a_pack_says_acts(terminals: Terminals, place: Place, name: str, whole: bool) -> None:
    """All texts at once that a manifest may hold; its keys are evil, and so is where it lies."""
    deciding = [way for way in place.accepted if way[-1] in ("codec", "kind")]  # without which little can be done
    usable = [way for way in place.accepted if way not in deciding and way != ("format",)]
    assert len(deciding) > len(place.accepted) // 10
    assert {way[0] for way in usable} >= {"written_by", "source", "options", "schema", "skipped", "incomplete"}
    pack = spoiled(place.filled, place.new("spoiled"), [(way, False) for way in usable])
    assert 0 in calm(terminals, name, OF_PACKS[name](place, pack), whole=whole)
    if whole or name == "info":
        pack = spoiled(pack, place.new("more"), [(way, False) for way in deciding])
        calm(terminals, name, OF_PACKS[name](place, pack))


@pytest.mark.full
@pytest.mark.parametrize("name", [*OF_PACKS])
def test_no_text_of_a_manifest_acts(terminals: Terminals, place: Place, name: str) -> None:
    """One at a time, those too that are refused; a sample where the command takes a second or two to start."""
    ways = list(texts(json.loads((place.filled / manifests.NAME).read_bytes())))
    for way in ways[:: 10 if name in IMPORTS_TORCH else 1]:
        pack = spoiled(place.filled, place.new("one"), [way])
        calm(terminals, name, OF_PACKS[name](place, pack), whole=False)
        shutil.rmtree(pack)


DAMAGE = ("remove", "cut", "flip", "zero", "sealed", "index", "manifest", "others")


def damaged_pack(place: Place, format: str, change: str) -> Path:
    """A pack of which a part, an index file or the manifest is not what it was, or with files that do not belong."""
    pack = Path(shutil.copytree(place.packed(format), place.new(), symlinks=True))
    (found,) = pack.glob("part-*")
    part = found if found.is_file() else next(path for path in sorted(found.rglob("*")) if path.is_file())
    data = part.read_bytes()
    match change:
        case "remove":
            part.unlink()
        case "cut":
            part.write_bytes(data[: len(data) // 2])
        case "flip":
            built_packs.flip(part, len(data) // 2)
        case "zero" | "sealed":
            part.write_bytes(bytes(len(data)))
        case "index" | "manifest":
            (pack / {"index": "index/keys.npy", "manifest": manifests.NAME}[change]).write_bytes(EVIL_TEXT.encode())
        case "others":
            (pack / named("other")).write_bytes(b"")
            (pack / "index" / named("other")).mkdir()
    if change == "sealed":
        reseal(pack)
    return pack


@pytest.mark.parametrize("change", DAMAGE)
def test_no_damaged_pack_acts(terminals: Terminals, place: Place, change: str) -> None:
    calm(terminals, "verify", [(damaged_pack(place, "lmdb", change),)], whole=False)


@pytest.mark.full
@pytest.mark.parametrize("change", DAMAGE)
@pytest.mark.parametrize("format", FORMATS)
def test_no_damaged_pack_acts_on_any_command(terminals: Terminals, place: Place, format: str, change: str) -> None:
    pack = damaged_pack(place, format, change)
    for name, lines in OF_PACKS.items():
        calm(terminals, name, lines(place, pack))


@each_way
@pytest.mark.parametrize("name", ["source", "damaged", "empty", "cornell", "table", "jacquard"])
def test_no_file_name_of_a_source_acts(terminals: Terminals, place: Place, name: str, whole: bool) -> None:
    codes = calm(terminals, "convert", OF_SOURCES["convert"](place, getattr(place, name)), whole=whole)
    assert {"source": 0, "empty": 2}.get(name, 3) in codes  # empty classes are a doubt about the layout


@pytest.mark.full
@pytest.mark.parametrize("name", [*SLOW])
def test_nothing_that_is_measured_acts(terminals: Terminals, place: Place, name: str) -> None:
    for source in (place.pack, place.damaged):
        calm(terminals, name, SLOW[name](place, source))


def test_an_unfinished_conversion_does_not_act(terminals: Terminals, place: Place) -> None:
    target = place.new()
    work = target.with_name(f".{target.name}.partial")
    (work / "done").mkdir(parents=True)
    (work / "done/part-00000.json").write_text(json.dumps({EVIL: EVIL}))
    for plan in ({"fingerprint": EVIL}, EVIL):
        (work / "plan.json").write_text(json.dumps(plan))
        assert calm(terminals, "convert", [(place.source, target)], whole=False) <= {2, 3}


def test_where_a_copy_came_from_does_not_act(terminals: Terminals, place: Place) -> None:
    assert calm(terminals, "stage", [(place.pack, "--to", place.stage)], whole=False) == {0}
    (origin,) = place.stage.rglob("*.origin")
    origin.write_bytes(os.fsencode(f"/{EVIL}"))
    assert calm(terminals, "stage", [("--list", "--to", place.stage)], whole=False) == {0}
    assert calm(terminals, "stage", [(place.pack, "--release", "--to", place.stage)], whole=False) == {0}


# ---- what is for other programs


def test_what_another_program_reads_is_raw_in_a_pipe_and_not_on_a_terminal(terminals: Terminals, place: Place) -> None:
    keys = [bytes(values["key"]) for values in built_packs.values(place.pack)]
    assert all(os.fsencode(EVIL) in key for key in keys)
    assert terminals.run(("info", place.pack, "--keys"), piped=True) == (0, b"".join(key + b"\n" for key in keys), b"")
    code, shown, _ = terminals.run(("info", place.pack, "--keys"))
    assert (code, harm(shown), len(shown.splitlines())) == (0, [], len(keys))
    code, shown, _ = terminals.run(("stage", place.pack, "--to", place.stage))
    assert (code, harm(shown)) == (0, [])
    code, path, _ = terminals.run(("stage", place.pack, "--to", place.stage), piped=True)
    assert (code, Path(os.fsdecode(path[:-1])).is_dir()) == (0, True)
    code, shown, _ = terminals.run(("convert", place.source, place.new(), "--json"), piped=True)
    assert EVIL in json.loads(shown)["pack"]


def test_a_line_to_paste_names_the_folder() -> None:
    for name in ("a b; rm -rf $HOME", "it's", named("a"), "\udcff\\1'", "-x", "", "caf\u00e9", "\u202e12\x017"):
        word = shell_word(name)
        assert printable(word) == word
        found = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
        assert os.fsdecode(found.stdout) == name
    assert shell_word("a b") == shlex.quote("a b")


@pytest.mark.parametrize(
    ("coding", "shown"), [("ascii", b"\\xe9\\u4e2d \\x1b\\n\n"), ("latin-1", b"\xe9\\u4e2d \\x1b\\n\n")]
)
def test_an_output_that_is_not_utf_8_gets_escapes(monkeypatch: pytest.MonkeyPatch, coding: str, shown: bytes) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, coding))
    echo("\u00e9\u4e2d \x1b\n")
    assert written.getvalue() == shown


# ---- for those who write Python

PYTHON = """
import packer, sys
from packer.datasets.pack_dataset import PackDataset
from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
path, source = {path!r}, {source!r}
try:
    found = packer.open(path)
    print(repr(found), repr(packer.Loader(found, 2)))
    monitored = packer.monitor(packer.Loader(found, 2, geometry=packer.geometry.Resize((8, 8))))
    for batch in monitored:
        pass
    print(monitored.report())
    del monitored
finally:
    {then}
"""
THEN = (
    "packer.open(path + 'x')",
    "packer.open(path).index_of('x' + path)",
    "packer.open(path)[99]",
    "packer.open(path, fields=[path])",
    "packer.open(path, verify='full')[0]",
    "convert(SourceSpec().open(source)[0], __import__('pathlib').Path(path + 'new'), ConversionOptions())",
)


@pytest.mark.parametrize("then", [THEN[0], *[pytest.param(then, marks=pytest.mark.full) for then in THEN[1:]]])
def test_a_traceback_that_python_prints_does_not_act(terminals: Terminals, place: Place, then: str) -> None:
    text = PYTHON.format(path=str(place.pack), source=str(place.damaged), then=then)
    code, shown, _ = terminals.run((text,), python=True)
    assert code == 1
    assert b"\\x1b" in shown
    assert not harm(shown), shown


@pytest.mark.full
@pytest.mark.parametrize("change", DAMAGE)
@pytest.mark.parametrize("format", FORMATS)
def test_a_traceback_of_a_damaged_pack_does_not_act(
    terminals: Terminals, place: Place, format: str, change: str
) -> None:
    pack = damaged_pack(place, format, change)
    text = PYTHON.format(path=str(pack), source="", then="list(packer.open(path))")
    _, shown, _ = terminals.run((text,), python=True)
    assert not harm(shown), shown
