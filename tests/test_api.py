"""The public face: docs/api.md shows each name with its signature, and its examples run."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin

import pytest

import packer
from packer.conversion import options, source_spec
from packer.dali import external_source
from packer.datasets import batch, pack_dataset
from packer.errors import InvalidRequest, PackExists
from packer.grasp import dataset as grasp_dataset
from packer.grasp import targets
from packer.images import decode
from packer.pack import reader, verification
from packer.system.progress_callback import Progress
from tests.support import source_trees, warm_python
from tests.support.command_line import called
from tests.support.conversions import digest
from tests.support.source_trees import photos

PAGE = (Path(__file__).parent.parent / "docs/api.md").read_text()
BLOCKS = dict(re.findall(r"^```py\npacker\.([\w.]+)(\(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE))
NAMES = sorted({*packer.__all__, "open"} - {"__version__"})
CALLABLES = [name for name in NAMES if not inspect.ismodule(getattr(packer, name))]
OF_MODULES = (  # names of modules that have a section of their own
    "dali.source",
    "datasets.DetectionCollate",
    "grasp.GraspDataset",
    "loading.BackgroundIterator",
    "loading.CUDAPrefetcher",
)


def source_of(name: str) -> tuple[Callable[..., Any], ast.FunctionDef]:
    """The function that a call of a public name runs, and its source."""
    value = inspect.unwrap(attrgetter(name)(packer))
    function = inspect.unwrap(value.__init__) if inspect.isclass(value) else value
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    return function, node


def annotations(node: ast.FunctionDef) -> dict[str, str]:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    every += [node.args.kwarg] if node.args.kwarg else []
    return {each.arg: ast.unparse(each.annotation).replace("'", '"') for each in every if each.annotation is not None}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_signature_of_the_page_is_that_of_the_code(name: str) -> None:
    function, node = source_of(name)
    (shown,) = ast.parse(f"def shown{BLOCKS[name]}: ...").body
    assert isinstance(shown, ast.FunctionDef)
    assert annotations(shown) == annotations(node)
    if function.__name__ != "__init__":
        assert shown.returns is not None and node.returns is not None
        assert ast.unparse(shown.returns) == ast.unparse(node.returns)
    found = [each for each in inspect.signature(attrgetter(name)(packer)).parameters.values()]
    arguments = shown.args
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(arguments.args)
    kinds += [inspect.Parameter.KEYWORD_ONLY] * len(arguments.kwonlyargs)
    if arguments.kwarg:
        assert (found[-1].name, found.pop().kind) == (arguments.kwarg.arg, inspect.Parameter.VAR_KEYWORD)
    assert [(each.name, each.kind) for each in found] == [
        (each.arg, kind) for each, kind in zip((*arguments.args, *arguments.kwonlyargs), kinds, strict=True)
    ]
    missing: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    defaults = [*missing, *arguments.defaults, *arguments.kw_defaults]
    for each, default in zip(found, defaults, strict=True):
        value = each.empty if default is None else eval(ast.unparse(default), function.__globals__)
        assert value == each.default, each.name


def test_the_page_has_every_public_name() -> None:
    assert set(BLOCKS) == {*CALLABLES, *OF_MODULES}
    for name in (*NAMES, *packer.datasets.__all__, *packer.loading.__all__):
        assert f"`{name}`" in PAGE, name


def test_the_page_has_every_choice() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?`) \| (`\".*?) \|$", PAGE, re.MULTILINE)
    shown = {name: re.findall(r'"(\w+)"', row) for names, row in rows for name in re.findall(r"`(\w+)`", names)}
    homes = (batch, external_source, decode, grasp_dataset, options, pack_dataset, reader, targets, verification)
    choices = {name: each for home in homes for name, each in vars(home).items() if name in shown}
    assert shown == {name: list(get_args(each)) for name, each in choices.items()}
    used = {word for name in BLOCKS for word in re.findall(r": ([A-Z]\w+)(?: \||,| =)", BLOCKS[name])}
    literals = {
        name for name in used if any(str(get_origin(vars(home).get(name))) == "typing.Literal" for home in homes)
    }
    assert literals <= set(shown)


def test_completion_shows_the_public_names_and_nothing_else() -> None:
    assert set(dir(packer)) == {*packer.__all__, "__doc__", "open"}
    assert "open" not in packer.__all__  # a star import keeps the builtin function
    for name in packer.__all__:
        assert getattr(packer, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = packer.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [*CALLABLES, *OF_MODULES])
def test_no_public_signature_hides_its_parameters(name: str) -> None:
    parameters = inspect.signature(attrgetter(name)(packer)).parameters.values()
    kinds = {each.kind for each in parameters if get_origin(each.annotation) is not Unpack}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


def test_the_page_on_the_api_runs(tmp_path: Path) -> None:
    """Its Python blocks as one program, in order."""
    photos(tmp_path / "photos", 12)
    source_trees.cornell(tmp_path / "cornell")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 12
    warm_python.run("\n".join(blocks), strict=True, folder=tmp_path)


# ---- convert, verify, extract: what the command line calls


def test_convert_makes_the_pack_that_the_command_makes(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 12)
    words = ("--resize", "40x30", "--codec", "image=jpeg:90", "--split", "train=0.5", "--split", "val=0.5")
    called("convert", root, tmp_path / "one.pack", "--to", "hdf5", *words, "--split-seed", "3")
    told: list[Progress] = []
    summary = packer.convert(
        str(root),
        str(tmp_path / "two.pack"),
        to="hdf5",
        resize=(30, 40),
        codecs={"image": "jpeg:90"},
        splits={"train": 0.5, "val": 0.5},
        split_seed=3,
        progress=told.append,
    )
    assert digest(tmp_path / "one.pack") == digest(tmp_path / "two.pack")
    assert (told[0].samples, told[-1].samples, told[-1].total, told[-1].bytes) == (0, 12, 12, summary.bytes_in)
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.samples = 3  # type: ignore[misc]
    with pytest.raises(PackExists):
        packer.convert(root, tmp_path / "two.pack", to="hdf5")


def test_convert_takes_a_source_object(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    notes: list[str] = []
    packer.convert(root, tmp_path / "one.pack", on_note=notes.append)
    assert notes[0].startswith(f"{root}: ")
    source, _ = source_spec.SourceSpec().open(root)
    packer.convert(source, tmp_path / "two.pack")
    assert digest(tmp_path / "one.pack") == digest(tmp_path / "two.pack")
    with pytest.raises(InvalidRequest, match="give them to the Source object"):
        packer.convert(source, tmp_path / "three.pack", classes="none")


def test_verify_and_extract_give_what_the_commands_tell(tmp_path: Path) -> None:
    root, pack = photos(tmp_path / "in", 6), tmp_path / "photos.pack"
    packer.convert(root, pack)
    sound = packer.verify(pack, source=root)
    assert sound.ok and sound.problems == ()
    told: list[Progress] = []
    written = packer.extract(str(pack), str(tmp_path / "again"), progress=told.append)
    assert (written.files, written.exact, told[-1].samples) == (6, 6, 6)
    assert digest(tmp_path / "again") == digest(root)
    part = next(pack.glob("part-*"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    seen: list[str] = []
    damaged = packer.verify(pack, on_problem=seen.append)
    assert not damaged.ok and list(damaged.problems) == seen != []
    with pytest.raises(InvalidRequest, match="level='deep'"):
        packer.verify(pack, level="deep")  # type: ignore[arg-type]
