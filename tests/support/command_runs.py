"""Commands that write, each with what lies there before, what may lie there after a fault, and how it is made whole."""

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np

import packer
from packer import codecs, formats, images, sources
from packer.cli import registry
from packer.errors import PackerError
from packer.pack import manifest as manifests
from packer.pack.verification import problems
from packer.schema import Field
from tests.support import built_packs, source_trees
from tests.support.conversions import digest, packed
from tests.support.fault_injection import PROGRAMS, Ended, in_one_thread, run
from tests.support.source_trees import photos

_PART = 5000  # bytes of the source; two parts
_SAMPLES = 6


class Scene(ABC):
    """One command in a folder of its own. `clean` is what it makes when nothing happens."""

    target = "out"

    def __init__(self, folder: Path, format: str) -> None:
        self.folder = folder
        self.format = format
        self.place = folder / "place"
        self.source = photos(folder / "in", _SAMPLES)
        self.prepare_source()
        self.begin()
        ended = run(self.words, folder)
        assert ended.code == 0, ended
        self.clean = digest(self.path)

    @property
    def path(self) -> Path:
        """What the command makes."""
        return self.place / self.target

    @property
    @abstractmethod
    def words(self) -> list[str | Path]:
        """The command."""

    def prepare_source(self) -> None:  # noqa: B027  not every scene needs one
        """What is made once."""

    def begin(self) -> None:
        """Everything as it is before the command."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()

    def state(self) -> str:
        """What lies there now: "absent" or "complete" or "old"; anything else is a fault."""
        if not self.path.exists():
            return "absent"
        if digest(self.path) == self.clean:
            return "complete"
        return "wrong"

    def finish(self, prepare: Callable[[], None] = in_one_thread) -> None:
        """The same command again ends with the same bytes, and nothing else is left."""
        was_there = self.state() == "complete"
        ended = run(self.words, self.folder, prepare=prepare)
        assert ended.code == (2 if was_there and not self.repeats else 0), ended
        assert self.state() == "complete"
        left = {path.name for path in self.place.iterdir()} - {self.target}
        # a run that was killed after its rename leaves its work folder, and the next one finds the target there
        assert left <= ({f".{self.target}.{self.work}"} if was_there and not self.repeats else set()), left

    repeats = False  # whether the command may be repeated once it has succeeded
    work = "partial"
    allowed = ("absent", "complete")  # what may lie there after a fault


class Convert(Scene):
    """A folder into a new pack."""

    @property
    def words(self) -> list[str | Path]:
        return ["convert", self.source, self.path, "--to", self.format, "--part-size", str(_PART)]

    def state(self) -> str:
        found = super().state()
        if found == "complete":
            assert list(problems(self.path, level="full")) == []
        return found


class Change(Convert):
    """A command that changes the pack `old`, which lies at the target before it."""

    repeats = True
    allowed = ("old", "complete")

    def begin(self) -> None:
        super().begin()
        shutil.copytree(self.folder / "old", self.path)

    def state(self) -> str:
        found = super().state()
        return "old" if found == "wrong" and digest(self.path) == digest(self.folder / "old") else found


class Overwrite(Change):
    """A folder in the place of an old pack, of other images, whose parts have the very same names and sizes."""

    @property
    def words(self) -> list[str | Path]:
        return [*super().words, "--resize", "16x16", "--codec", "image=raw", "--overwrite"]

    def prepare_source(self) -> None:
        other = shutil.copytree(self.source, self.folder / "other")
        for number, path in enumerate(sorted(other.rglob("*.jpg"))):
            path.write_bytes(source_trees.image(100 + number, suffix=".jpg", height=24, width=32))
        options = {"to": self.format, "resize": "16x16", "codecs": (("image", "raw"),), "part_bytes": _PART}
        packed(self.source, self.folder / "new", **options)
        packed(other, self.folder / "old", **options)
        parts = [manifests.read(self.folder / name).parts for name in ("old", "new")]
        assert [(part.name, part.bytes) for part in parts[0]] == [(part.name, part.bytes) for part in parts[1]]


class Append(Change):
    """Further photos into a pack of two parts, whose photos are in the folder too."""

    @property
    def words(self) -> list[str | Path]:
        return ["append", self.path, self.source]

    def prepare_source(self) -> None:
        packed(self.source, self.folder / "old", to=self.format, part_bytes=_PART)
        photos(self.source, _SAMPLES + 3)


class Repack(Convert):
    """A pack into a new pack of the same format, resized."""

    def prepare_source(self) -> None:
        self.before = self.folder / "before"
        packed(self.source, self.before, to=self.format, part_bytes=_PART)

    @property
    def words(self) -> list[str | Path]:
        # a share of a part is larger than its samples
        return [
            *("convert", self.before, self.path, "--to", self.format, "--resize", "16"),
            *("--part-size", str(sum(part.bytes for part in manifests.read(self.before).parts) // 2 + 1)),
        ]


class Index(Scene):
    """The index of a pack made again; it is missing one file and another is damaged."""

    repeats = True
    work = "index"
    allowed = ("refused", "complete")

    @property
    def words(self) -> list[str | Path]:
        return ["index", self.path]

    def prepare_source(self) -> None:
        packed(self.source, self.folder / "whole", to=self.format, part_bytes=_PART)
        self.records = built_packs.values(self.folder / "whole")

    def begin(self) -> None:
        super().begin()
        shutil.copytree(self.folder / "whole", self.path)
        (self.path / "index/keys.npy").unlink()
        built_packs.flip(self.path / "index/crc32.npy", 200)

    def state(self) -> str:
        """Until it is whole a reader refuses it: no pack is read with a wrong index."""
        found = super().state()
        if found == "wrong":
            try:
                assert built_packs.values(self.path) == self.records
            except PackerError:
                return "refused"
        return found


class Extract(Scene):
    """The files of a pack."""

    work = "extract"

    @property
    def words(self) -> list[str | Path]:
        return ["extract", self.before, self.path]

    def prepare_source(self) -> None:
        self.before = self.folder / "before"
        packed(self.source, self.before, to=self.format, part_bytes=_PART)


class Write(Convert):
    """A program that writes samples, and skips those that an earlier run stored."""

    @property
    def words(self) -> list[str | Path]:
        return ["write", self.path, self.format]


class Finish(Convert):
    """The shards of two processes, joined to one pack."""

    def prepare_source(self) -> None:
        for shard in range(2):
            write_samples(self.folder / "shards" / "out", self.format, shard=shard, shards=2)

    @property
    def words(self) -> list[str | Path]:
        return ["finish", self.path]

    def begin(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.folder / "shards", self.place)

    def finish(self, prepare: Callable[[], None] = in_one_thread) -> None:
        """The same call joins the shards, or removes those that a killed one left."""
        has_shards = any(self.place.glob("*.shard-*"))
        self.repeats = has_shards
        super().finish(prepare)


def write_samples(target: str | Path, format: str, **options: int) -> None:
    """A few images into a pack, in parts of two."""
    Path(target).parent.mkdir(exist_ok=True)
    fields: dict[str, str | Field] = {"image": "image", "label": "number"}
    with packer.Writer(
        target, fields=fields, to=format, part_bytes=2 * 24 * 32 * 3 + 100, threads=1, **options
    ) as writer:
        for number in range(_SAMPLES):
            key = f"{options.get('shard', '')}k{number}"
            if key not in writer:
                pixels = np.random.default_rng(number).integers(0, 256, (24, 32, 3), np.uint8)
                writer.write({"image": pixels, "label": number % 3}, key=key)


PROGRAMS |= {"write": write_samples, "finish": lambda target: packer.finish(target)}
SCENES: dict[str, type[Scene]] = {
    "convert": Convert,
    "overwrite": Overwrite,
    "append": Append,
    "repack": Repack,
    "index": Index,
    "extract": Extract,
    "write": Write,
    "finish": Finish,
}


def load_everything() -> None:
    """Import what commands import late, so that a forked child does not do it anew each time."""
    for members in (formats, sources, codecs):
        for name in members.names():
            members.load(name)
    for name in registry.names():
        registry.load(name)
    import torch  # noqa: PLC0415, F401

    import packer.conversion.append  # noqa: PLC0415, F401
    import packer.conversion.convert  # noqa: PLC0415, F401
    import packer.conversion.writer  # noqa: PLC0415, F401
    import packer.inspect.extraction  # noqa: PLC0415, F401
    import packer.pack.index_rebuild  # noqa: PLC0415, F401

    images.decode(source_trees.image(0, suffix=".jpg"), "image")  # looks for its library by starting ldconfig


SAID = {
    "EROFS": "Read-only file system",
    "ENOSPC": "No space left",
    "EIO": "Input/output error",
    "EINTR": "Interrupted system call",
}


def check_end(scene: Scene, ended: Ended, what: str) -> str:
    """After a fault, such as error=EIO or signal=KILL: an allowed state, a clear end; returns both as a text."""
    state = scene.state()
    assert state in scene.allowed, (state, ended)
    where = f"{state}, {ended}, {json.dumps([str(word) for word in scene.words])}"
    if ended.code == 0:
        assert state == "complete", where
    elif what.startswith("error="):
        assert ended.code == 4, where
        assert "Traceback" not in ended.text, where
        said = ended.text[ended.text.index("packer: ") :]
        assert str(scene.place) in said, where
        assert SAID[what.removeprefix("error=")] in said, where
        if what == "error=ENOSPC":
            assert "bytes are free" in said or " are free;" in said, where
    else:
        assert ended.signal is not None or ended.code in (130, 143), where
        assert "Traceback" not in ended.text, where
    return f"{what}, {state}, exit {ended.code if ended.signal is None else -ended.signal}"
