"""Rules about the code itself, checked over its syntax trees: who imports whom, and what is banned."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

import packer
from tests.support import warm_python

ROOT = Path(packer.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MODULES = {".".join(("packer", *path.relative_to(ROOT).with_suffix("").parts)): path for path in FILES}

# a module imports from its own room and from those above it in this list
ROOMS = (
    "errors",
    "schema",
    "registry",
    "system",
    "files",
    "stores",
    "geometry",
    "images",
    "layouts",
    "codecs",
    "formats",
    "sources",
    "pack",
    "conversion",
    "copies",
    "inspect",
    "datasets",
    "loading",
    "dali",
    "grasp",
    "tools",
    "synthetic",
    "browse",
    "cli",
    "__main__",
)
HEAVY = ("torch", "cv2", "h5py", "lmdb", "numpy", "ray", "obstore", "packer.stores.client_process")


def name_of(path: Path) -> str:
    """Dotted name of a module; a package has no `__init__` in it."""
    return ".".join(("packer", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def tree_of(path: Path) -> ast.Module:
    """The module's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


class Trees(dict[Path, ast.Module]):
    """Syntax trees, each parsed when it is first asked for: every process of a run collects this file."""

    def __missing__(self, path: Path) -> ast.Module:
        tree = self[path] = tree_of(path)
        return tree


TREES = Trees()


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Every node of a file's tree, for all rules that look at each."""
    return list(ast.walk(TREES[path]))


@pytest.fixture(scope="module", autouse=True)
def trees_are_freed() -> Iterator[None]:
    """A million nodes slow down each collection of later tests."""
    yield
    TREES.clear()
    nodes_of.cache_clear()
    uses.cache_clear()


NAMES = {name_of(path) for path in FILES}


def imports(path: Path, *, top_level: bool = False) -> Iterator[str]:
    """Every module that a file imports, as a dotted name; those for type checkers count too."""
    for node in TREES[path].body if top_level else nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import in line {node.lineno}"
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield inner if inner in NAMES else module


def own_imports(path: Path) -> set[str]:
    """Modules of packer that a file imports."""
    return {name for name in imports(path) if name.partition(".")[0] == "packer"}


def room(module: str) -> str:
    """The room of a module: the part of its name behind `packer`; empty for the package itself."""
    return (module.split(".") + [""])[1]


@functools.cache
def named(path: Path) -> str:
    """A file as a test id."""
    return path.relative_to(ROOT).as_posix()


RULES: dict[str, Callable[[Path], None]] = {}


def each_file(rule: Callable[[Path], None]) -> Callable[[], None]:
    """A test that a rule holds for every file: one for all of them, since counting 3000 takes longer than they do."""
    RULES[rule.__name__] = rule

    def test() -> None:
        faults = []
        for path in FILES:
            try:
                rule(path)
            except AssertionError as fault:
                faults.append(f"{named(path)}: {fault}")
        assert not faults, "\n".join(faults)

    return test


# ---- who imports whom


@each_file
def test_imports_point_one_way(path: Path) -> None:
    own = room(name_of(path))
    if not own:
        return  # the facade
    assert own in ROOMS, f"{named(path)}: give the room {own!r} its place in ROOMS"
    for module in own_imports(path) - {"packer", "packer.__version__"}:
        assert ROOMS.index(room(module)) <= ROOMS.index(own), f"{named(path)} imports {module}, a room below its own"


def test_every_room_is_there() -> None:
    assert {room(name) for name in NAMES} == {"", *ROOMS}


@each_file
def test_only_the_version_is_imported_from_the_package_itself(path: Path) -> None:
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module == "packer":
            extra = {alias.name for alias in node.names if f"packer.{alias.name}" not in NAMES} - {"__version__"}
            assert not extra, f"{named(path)} imports {extra} from packer"


def test_members_of_one_layer_keep_apart() -> None:
    """A format imports no codec and no source, a codec no format, and so on; decoders and warping go together."""
    for path in FILES:
        part = (name_of(path).split(".") + [""])[1]
        if part in ("formats", "codecs", "sources"):
            others = {"formats", "codecs", "sources"} - {part}
            found = {name for name in own_imports(path) if name.split(".")[1] in others}
            assert not found, f"{named(path)} imports {found}"


def members(folder: str) -> list[str]:
    """Names of the files of a registry's folder, and of its subfolders, that are members."""
    files = [*(ROOT / folder).glob("[!_]*.py"), *(ROOT / folder).glob("[!_]*/[!_]*.py")]
    return [
        ".".join(("packer", *path.relative_to(ROOT).with_suffix("").parts)) for path in files if path.stem != "base"
    ]


@pytest.mark.parametrize("folder", ["formats", "codecs", "sources"])
def test_no_member_of_a_registry_imports_another(folder: str) -> None:
    every = set(members(folder))
    assert every
    for name in every:
        found = own_imports(MODULES[name]) & (every - {name})
        assert not found, f"{name} imports {found}"


def test_only_the_format_pth_may_import_torch() -> None:
    for name in members("formats"):
        found = {module.partition(".")[0] for module in imports(MODULES[name])}
        assert "torch" not in found or name == "packer.formats.pth"


def test_a_format_does_not_know_images() -> None:
    for name in members("formats"):
        found = {module.partition(".")[0] for module in imports(MODULES[name])}
        if name != "packer.formats.bmp":
            assert not found & {"cv2", "PIL", "turbojpeg", "simplejpeg"}, name


def test_no_test_leans_on_the_jpeg_library_that_happens_to_be_here() -> None:
    """Functions of `libjpeg.library()` are not patched: who patches them knows one library. `Noted` may be."""
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        if path.name != Path(__file__).name:
            assert "libjpeg.library()" not in path.read_text(), f"{path.name}: jpeg_libraries.LIBRARIES has each"


def test_no_forked_child_of_a_test_goes_on_with_the_test_run() -> None:
    """What a child raises would be caught by pytest there, too, which would run the next test twice."""
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        if not re.search(r"\bfork\(|_exit\(", path.read_text(encoding="utf-8")):
            continue  # parsing all takes seconds
        called = (ast.unparse(node.func) for node in ast.walk(TREES[path]) if isinstance(node, ast.Call))
        assert not {"os.fork", "fork", "os._exit"} & set(called), f"{path.name}: child_processes has child and forked"


@each_file
def test_codecs_and_sources_are_asked_what_they_are(path: Path) -> None:
    """Who takes a codec's text apart, or asks for a source's class, knows what the codec or the source should say."""
    text = path.read_text(encoding="utf-8")
    assert "codec.partition(" not in text, f"{named(path)}: Field.codec_name, codec_argument; packer.codecs.make"
    if named(path) != "conversion/pack_source.py":  # whose records are made anew of its own
        assert not re.search(r"isinstance\([^()]*, PackSource\)", text), f"{named(path)}: give sources.base a method"


def test_there_is_no_cycle() -> None:
    graph = {name_of(path): own_imports(path) for path in FILES}
    graph["packer"] = set()  # the facade imports when a name is first asked for
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, f"imports go round: {' -> '.join((*way, module))}"
        if module not in done:
            for other in sorted(graph.get(module, ()) - {module}):
                visit(other, (*way, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())


def test_no_module_has_the_name_of_something_that_packer_exports() -> None:
    functions = {name for name in packer.__all__ if callable(getattr(packer, name))}
    assert not functions & {path.stem for path in ROOT.glob("*.py")}
    assert not functions & {path.name for path in ROOT.iterdir() if path.is_dir()}


def imported_by(code: str, names: Collection[str] = HEAVY, *, fresh: bool = True) -> set[str]:
    """Those of the names, of modules or packages, that an interpreter has imported after running `code`.

    fresh: it begins without any module; else torch and other libraries are imported already, see `warm_python`.
    """
    program = f"{code}\nimport sys; print('MODULES', *sorted(set(sys.modules) & {set(names)!r}))"
    if fresh:
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT.parent
        )
    else:
        result = warm_python.run(program, capture=True, folder=ROOT.parent)
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("MODULES"))
    return set(line.split()[1:])


@pytest.mark.parametrize(
    "code",
    [
        "import packer",
        "import packer.cli",
        "from packer.cli import main; main(['--help'], standalone_mode=False)",
        "from packer.cli import main; main(['--version'], standalone_mode=False)",
        "import packer.formats; packer.formats.names()",
        "import packer.codecs; packer.codecs.names()",
        "import packer.schema, packer.errors, packer.registry, packer.system.parallel",
    ],
)
def test_what_must_be_light_imports_nothing_heavy(code: str) -> None:
    assert imported_by(code) == set()


def test_the_test_of_lightness_sees_what_is_heavy() -> None:
    assert imported_by("import numpy") == {"numpy"}


CLIENTS = ("ray", "obstore", "packer.stores.store", "packer.stores.client_process")
# what no conversion that keeps bytes has a use for, some of it a tenth of a second and more each
NOT_TO_COPY = (
    *("torch", "cv2", "h5py", "PIL", "matplotlib", "tqdm", "turbojpeg", "simplejpeg", "pyarrow"),
    *("importlib.metadata", "email", "multiprocessing", "asyncio", "packer.datasets", "packer.loading"),
    *("packer.tools", "packer.grasp", "packer.inspect", "packer.copies", "packer.geometry.warp"),
    *CLIENTS,
)


def test_a_conversion_that_keeps_bytes_imports_nothing_to_decode_or_to_train(tmp_path: Path) -> None:
    """Nor does it ask importlib.metadata, email and all, for packages that offer nothing."""
    from tests.support import source_trees  # noqa: PLC0415  OpenCV, which the rules here do without

    source_trees.photos(tmp_path / "photos")
    words = ["convert", str(tmp_path / "photos"), str(tmp_path / "out.pack"), "--validate", "header"]
    assert imported_by(f"from packer.cli import main; main({words!r}, standalone_mode=False)", NOT_TO_COPY) == set()
    assert (tmp_path / "out.pack/packer.json").exists()


def test_a_pack_in_a_folder_is_opened_without_what_converts_and_what_reads_urls(tmp_path: Path) -> None:
    """Every worker process opens it: 42 modules more were 0.1 s more for each."""
    from tests.support.built_packs import make_pack  # noqa: PLC0415  as above

    make_pack(tmp_path / "x.pack", format="pth")
    reads_urls = ("packer.copies.remote_pack", *CLIENTS)
    names = ("packer.conversion.build_part", "packer.conversion.plan", "packer.sources", *reads_urls)
    read = f"import packer; data = packer.open({str(tmp_path / 'x.pack')!r}); data[0]"
    assert imported_by(read, names, fresh=False) == set()


def test_the_help_of_a_command_does_not_import_what_it_does() -> None:
    code = "from packer.cli import main; main(['convert', '--help'], standalone_mode=False)"
    names = (*HEAVY, *NOT_TO_COPY, "packer.conversion.convert", "concurrent.futures", "tempfile")
    assert imported_by(code, names) == set()


# ---- what is banned


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of names, else an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := dotted(node.value)):
        return f"{head}.{node.attr}"
    return ""


BANNED_IMPORTS = ("pickle", "marshal", "shelve", "dill", "joblib", "tarfile", "subprocess", "cPickle", "code")
BANNED_NAMES = ("eval", "exec", "compile", "__import__", "breakpoint")
HANDS_ON_ENVIRONMENT = {  # to an interpreter of its own, in which the stores' own client reads its variables
    ("os.environ", "stores/client_process.py"),
}
BANNED_CALLS = (
    *("os.environ", "os.getenv", "os.putenv", "os.system", "os.popen", "os.fork"),
    *("np.load", "numpy.load", "torch.hub", "sys.settrace", "gc.disable", "random.seed", "np.random.seed"),
)
# of what renames and removes, also as a method of some path; sets and lists have a `remove` too
DISK_CALLS = (
    *("os.rename", "os.renames", "os.replace", "os.remove", "os.unlink", "os.rmdir", "os.removedirs"),
    *("os.link", "os.symlink", "shutil.rmtree", "shutil.move", "shutil.copytree", "shutil.copyfile"),
)
DISK_METHODS = ("unlink", "rmdir", "rename", "rmtree", "hardlink_to", "symlink_to", "write_text", "write_bytes")
SYNC_CALLS = ("os.fsync", "os.fdatasync", "os.sync")
MAY_TOUCH_DISK = ("files/folder_handle.py", "files/work_folder.py")
MAY_SYNC = (*MAY_TOUCH_DISK, "files/fsync.py")
# methods of these files that only have such a name, or that write where nobody else can
NOT_OF_A_PATH = {
    "cli/collect.py": ("rename",),  # fields of a dataset
    "synthetic/set_writer.py": ("write_bytes",),  # into its work folder, by the path through its descriptor
}


@functools.cache
def uses(path: Path) -> list[tuple[int, str]]:
    """Line and dotted name of everything that is named in a file."""
    named_there = [node for node in nodes_of(path) if isinstance(node, (ast.Name, ast.Attribute))]
    return [(node.lineno, found) for node in named_there if (found := dotted(node))]


@each_file
def test_nothing_of_the_ban_list_is_used(path: Path) -> None:
    for line, name in uses(path):
        where = f"{named(path)}:{line}: {name}"
        assert name not in BANNED_NAMES, where
        assert name not in BANNED_CALLS or (name, named(path)) in HANDS_ON_ENVIRONMENT, where
        assert name != "NotImplementedError", where
        if named(path) not in MAY_TOUCH_DISK:
            assert name not in DISK_CALLS, where
            method = name.rpartition(".")[2] if "." in name else ""
            assert method not in DISK_METHODS or method in NOT_OF_A_PATH.get(named(path), ()), where
        assert name not in SYNC_CALLS or named(path) in MAY_SYNC, where
    for module in imports(path):
        assert module.partition(".")[0] not in BANNED_IMPORTS, f"{named(path)} imports {module}"


@each_file
def test_json_of_others_has_one_reader(path: Path) -> None:
    """It refuses an object that has a key twice."""
    if named(path).startswith(("sources/", "layouts/")) and named(path) != "layouts/json_text.py":
        assert not {name for _, name in uses(path)} & {"json.loads", "json.load", "json.JSONDecoder"}


READS_YAML = "sources/annotations/_yolo_description.py"


@each_file
def test_yaml_becomes_text_lists_and_mappings_only(path: Path) -> None:
    """Other loaders make objects, and share what aliases name."""
    found = {name for _, name in uses(path) if name.startswith("yaml.") and "load" in name.lower()}
    assert found <= {"yaml.BaseLoader"}, f"{named(path)}: {found}"
    assert "yaml" not in imports(path) or named(path) == READS_YAML, f"{named(path)} imports yaml"


DOOR = "files/terminal_output.py"
PRINTING = (
    *("print", "input", "logging", "pprint", "sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"),
    *("click.echo", "click.secho", "click.style", "click.prompt", "click.confirm", "click.progressbar"),
    *("traceback.print_exc", "traceback.print_exception", "traceback.print_stack", "faulthandler", "sys.excepthook"),
)
# who else names them, and why nothing of a file or a pack is written there
MAY_NAME_OUTPUTS = {
    DOOR: "the door itself",
    "cli/__init__.py": "flushes and closes standard output",
    "files/progress_bar.py": "tqdm's bar: counts and rates",
    "tools/wait_monitor.py": "the report goes to the file that the user gave; keys in it are quoted by repr",
}


@each_file
def test_everything_is_printed_through_one_door(path: Path) -> None:
    """`files/terminal_output.py` makes it printable; a warning's text is made so where it is given."""
    for line, name in uses(path):
        named_there = name.startswith(tuple(f"{output}." for output in PRINTING)) or name in PRINTING
        assert not named_there or named(path) in MAY_NAME_OUTPUTS, f"{named(path)}:{line}: {name}"
        writes = name.startswith(("sys.stdout", "sys.stderr")) and name.rpartition(".")[2].startswith("write")
        assert not writes or named(path) == DOOR, f"{named(path)}:{line}: {name}"
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            taken = {f"{node.module}.{alias.name}" for alias in node.names} & {*PRINTING, "warnings.warn"}
            assert not taken, f"{named(path)}:{node.lineno}: {taken}"
        if isinstance(node, ast.Call) and dotted(node.func) in ("warnings.warn", "warnings.warn_explicit"):
            text = node.args[0] if node.args else node
            is_printable = isinstance(text, ast.Constant) or (
                isinstance(text, ast.Call) and dotted(text.func) in ("printable", "shortened")
            )
            assert is_printable, f"{named(path)}:{node.lineno}: warnings.warn of what may hold a name: printable(...)"


@each_file
def test_no_call_asks_for_a_shell_or_for_pickles(path: Path) -> None:
    for node in nodes_of(path):
        if not isinstance(node, ast.Call):
            continue
        given = {word.arg: word.value for word in node.keywords}
        assert "shell" not in given, f"{named(path)}:{node.lineno}"
        if "allow_pickle" in given:
            assert ast.unparse(given["allow_pickle"]) == "False", f"{named(path)}:{node.lineno}"
        if dotted(node.func) == "torch.load":
            assert ast.unparse(given.get("weights_only", node.func)) == "True", f"{named(path)}:{node.lineno}"


HANDS_ON = (
    "loading/thread_engine.py",
    "loading/background_iterator.py",
    "conversion/writer.py",
)  # a thread that hands on what it caught, to be raised in another


@each_file
def test_no_except_catches_everything(path: Path) -> None:
    for node in nodes_of(path):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = ast.unparse(node.type) if node.type is not None else ""
        raises_again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        if named(path) in HANDS_ON and isinstance(node.body[-1], (ast.Assign, ast.Return)):
            continue
        if "BaseException" in caught or not caught:
            assert raises_again, f"{named(path)}:{node.lineno}: except {caught} that does not raise again"
        elif raises_again:
            continue
        elif "Exception" in caught.replace("ClickException", "").split(".")[-1]:
            assert named(path) == "cli/__init__.py", f"{named(path)}:{node.lineno}: except {caught}"


@each_file
def test_no_assert_checks_input_and_nothing_is_left_to_do(path: Path) -> None:
    asserts = [node.lineno for node in nodes_of(path) if isinstance(node, ast.Assert)]
    assert not asserts, f"{named(path)}: assert in lines {asserts}"
    text = path.read_text(encoding="utf-8")
    for word in ("TODO", "FIXME", "XXX", "HACK"):
        assert word not in text, f"{named(path)}: {word}"


@each_file
def test_a_late_import_says_why(path: Path) -> None:
    """Imports inside a function are there to keep another import light, and a comment on one of them says so."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in nodes_of(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            late = [inner for inner in ast.walk(node) if isinstance(inner, (ast.Import, ast.ImportFrom))]
            commented = any("  # " in lines[at - 1] for inner in late for at in (inner.lineno, inner.end_lineno or 1))
            assert commented or not late, f"{named(path)}:{late[0].lineno}: import inside {node.name}"


def test_the_list_of_exceptions_holds_nothing_that_is_gone() -> None:
    named_here = (*MAY_SYNC, *NOT_OF_A_PATH, *MAY_NAME_OUTPUTS, READS_YAML)
    assert {path for path in named_here if not (ROOT / path).exists()} == set()


# ---- one word, one thing

# what each member of a plug-in folder defines under the name that its interface says
INTERFACES = {
    "Codec": ("codecs/",),
    "Engine": ("conversion/engines/",),
    "Reader": ("formats/",),
    "Writer": ("formats/",),
    "Source": ("sources/",),
}
# a module there has the name of the format, data set or command that it is for
PLUG_INS = (
    "cli",
    "codecs",
    "formats",
    "sources",
    "images/file_types",
    "images/backends",
    "conversion/engines",
)


def is_plug_in(path: Path) -> bool:
    """Whether a file stands in a folder of plug-ins."""
    return any(path.is_relative_to(ROOT / folder) for folder in PLUG_INS)


def twice(places: Iterator[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that stand in more than one place."""
    found: dict[str, list[str]] = {}
    for name, path in places:
        found.setdefault(name, []).append(named(path))
    return {name: where for name, where in found.items() if len(where) > 1}


def classes() -> Iterator[tuple[str, Path]]:
    """Every class that a module defines, apart from those of an interface."""
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and not named(path).startswith(INTERFACES.get(node.name, ())):
                yield node.name, path


def test_no_class_name_stands_twice() -> None:
    assert twice(classes()) == {}


def test_no_module_name_stands_twice() -> None:
    modules = ((path.stem, path) for path in FILES if path.stem != "__init__" and not is_plug_in(path))
    assert twice(modules) == {}


def is_any(annotation: ast.expr | None) -> bool:
    """Whether an annotation says nothing."""
    return annotation is not None and ast.unparse(annotation) in ("Any", "object")


@each_file
def test_no_public_signature_hides_its_parameters(path: Path) -> None:
    """`**options: Any` says neither what there is nor of what type. A command's are declared in its decorators."""
    for node in nodes_of(path) if not named(path).startswith("cli/") else ():
        if isinstance(node, ast.FunctionDef) and node.args.kwarg is not None:
            public = not node.name.startswith("_") or node.name in ("__init__", "__call__")
            where = f"{named(path)}:{node.lineno}: {node.name}(**{node.args.kwarg.arg})"
            assert not (public and is_any(node.args.kwarg.annotation)), where


# ---- that the rules are seen to fail

PLANTED = {
    "test_no_public_signature_hides_its_parameters": "from typing import Any\n\n\ndef f(**how: Any) -> None: ...\n",
    "test_nothing_of_the_ban_list_is_used": "import os\n\nx = os.getenv('X')\n",
    "test_yaml_becomes_text_lists_and_mappings_only": "import yaml\n\nx = yaml.safe_load('x')\n",
    "test_everything_is_printed_through_one_door": "import sys\n\nsys.stderr.write('x')\n",
    "test_no_except_catches_everything": "try:\n    x = 1\nexcept Exception:\n    pass\n",
    "test_no_call_asks_for_a_shell_or_for_pickles": "import numpy as np\n\nx = np.fromfile('x', allow_pickle=True)\n",
    "test_no_assert_checks_input_and_nothing_is_left_to_do": "assert 1\n",
    "test_a_late_import_says_why": "def f():\n    import cv2\n    return cv2\n",
    "test_imports_point_one_way": "from packer.cli import main\n",
}


def test_a_fault_in_any_file_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlucky(path: Path) -> None:
        assert path != FILES[-1], "the last one"

    monkeypatch.setitem(RULES, "unlucky", unlucky)
    with pytest.raises(AssertionError, match=rf"{re.escape(named(FILES[-1]))}: the last one"):
        each_file(unlucky)()


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_fault_is_found(rule: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file in the place of pack/planted.py that breaks one rule."""
    planted = tmp_path / "pack" / "planted.py"
    planted.parent.mkdir()
    planted.write_text(PLANTED[rule])
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    monkeypatch.setitem(TREES, planted, tree_of(planted))
    with pytest.raises(AssertionError):
        RULES[rule](planted)


# what gives memory that several processes write -> who may name it, and why
SHARING = ("memfd_create", "MAP_SHARED", "share_memory_", "shared_memory", "SharedMemory", "_new_shared", "shm_open")
SHARERS = {
    "system/shared_memory.py": "the one owner of such memory, with the rule for using it again",
    "system/_torch_private.py": "how torch makes a storage over it, for packer.system.shared_memory",
    "datasets/pack_dataset.py": "asks packer.system.shared_memory for it",
    "loading/process_engine.py": "asks whether the system has it",
    "grasp/dataset.py": "one number, the epoch, for workers that live on",
    "tools/tune.py": "counters of the workers",
    **dict.fromkeys(("system/machine_limits.py", "tools/packing_advice.py", "tools/doctor.py"), "the folder /dev/shm"),
    **dict.fromkeys(
        (f"copies/{name}.py" for name in ("leased_folder", "capacity", "stager", "staged_copies")), "as above"
    ),
}


# private names of torch that packer uses
OF_TORCH = ("_new_shared", "_new_shared_fd_cpu", "_shutdown_workers")


@each_file
def test_one_module_names_what_is_private_to_torch(path: Path) -> None:
    """It says which versions were read: see packer.system._torch_private."""
    if path.name == "_torch_private.py":
        return
    nodes = [node for node in nodes_of(path) if isinstance(node, ast.Attribute)]
    found = [node.attr for node in nodes if node.attr in OF_TORCH]
    found += [text for node in nodes if (text := dotted(node)).startswith("torch.") and "._" in text]
    found += [name for name in imports(path) if name.startswith("torch.") and "._" in name]
    assert not found, f"{named(path)}: {found}"


@each_file
def test_one_module_makes_shared_memory(path: Path) -> None:
    """Who uses it again must know who holds it: see packer.system.shared_memory."""
    nodes = nodes_of(path)
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    named |= {node.id for node in nodes if isinstance(node, ast.Name)}
    named |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    found = sorted(named & set(SHARING))
    assert not found or path.relative_to(ROOT).as_posix() in SHARERS, found
