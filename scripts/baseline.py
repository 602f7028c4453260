"""Rows that show what packer does at a commit: one per conversion, batch, signature, option and import.

`write` unpacks COMMIT into .baseline/tip and builds a small tree of each source with the tests of that commit. It
records the rows in .baseline/rows.json. `compare` makes the same rows with this checkout, from the same trees. A row is
a name and an outcome: sha256 of the files of the pack and of its decoded samples, or the class and exit code of an
error. The command line makes the packs, because its options stay when internal modules move.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FROZEN = "a1bd783"  # the commit before the simplification
HOME = ROOT / ".baseline"
TREES, ROWS, TIP = HOME / "trees", HOME / "rows.json", HOME / "tip"
HEAVY = ("torch", "cv2", "h5py", "lmdb", "numpy")
IS_FROZEN = Path.cwd() == TIP  # this process imports the packer of FROZEN

# (pattern of row names, reason): rows that differ from FROZEN on purpose. One reason per change of behavior.
INTENDED: tuple[tuple[str, str], ...] = (
    (r"option (bench|profile|stats|tune) plot", "plots are left to other tools: --json has the figures"),
    (r"signature monitor", "packer profile lists the slowest samples"),
    (r"ocid-grasp --missing skip, .*", "grasps by class of a skipped image are extras, as its other files are"),
    (r"batches coco .*|coco --resize .*", "box_areas scale with the image"),
    (r"option convert (mask|unknown)_colou?rs|option synth colou?rs|.* --mask-colours voc.*", "American spelling"),
    (r"signature (grasp\.)?GraspDataset", "items: image instead of picture"),
    (r"(n5|npy|npz) --max-pixels 100", "arrays with more pixels are refused: no reader opens such a pack"),
    (r"signature PackDataset\.(check_transform|stored_rows)", "methods that Loader and convert call"),
    (r"signature PackDataset\.fetch_ahead", "rank and world_size: ranks share the cache"),
    (r"signature (Pack|Grasp)Dataset\.batch_decoder", "collate: the decoder of a batch finishes the batch"),
    (r"signature BackgroundIterator\.close", "the method is inherited from Pass"),
    (
        r"option (append|collect|ls|view) .*|signature (append|concat|finish|Mix.*|Writer.*)"
        r"|signature (loading\.)?(Loader|Mix|SizeBuckets|balanced)",
        "packs that grow, mixes of packs, and a page to browse them",
    ),
    (r"option advise .*", "advise has the options of sources"),
    (r"option info (shuffle|window|batch_size)", "a Loader warns of batches with few classes; info does not judge it"),
    (r"signature convert", "the options of sources are keywords of SourceOptions, an Unpack[TypedDict]"),
    (r"signature datasets\.DetectionCollate", "keep_crowd: targets have no boxes of crowds"),
    (r"signature geometry\.BoxRule", "min_side: boxes with a shorter side are dropped"),
    (
        r"grasp-anything --missing skip, (removed|renamed) image/.*",
        "skipped images are listed in the order of their keys, also those whose image file is absent",
    ),
    (r"basicsr-lmdb, halved meta_info.txt", "only lists with sizes are read: values of meta_info.txt are image files"),
    (
        r"vmrd.*, (doubled|renamed) Grasps/.*",
        "grasps without an image are reported as skipped, as annotation files are",
    ),
    (r"option (bench|tune) (as_csv|outputs)|option tune early_break|option synth missing_grasps", "rare options"),
    (r"signature dali\.ExternalSource", "chosen: a Subset becomes the pack of its rows"),
    (
        r"option convert (on_error|(ray_)?address|(nodes|worker)_scratch|quiet|kind|threads)|option stage keep"
        r"|option formats source|option (advise|bench|profile|tune) batch"
        r"|option info batch_size|option (stats|synth) threads",
        "short options, --batch-size in all commands, one word per policy, the options of one source",
    ),
    (r"option verify (depth|level)|signature verify", "level: quick, default or full"),
    (
        r"signature (open|\w*Dataset(\..*)?|BackgroundIterator.*|CUDAPrefetcher.*|DataLoaderX.*|datasets\..*)",
        "the top level has the names of most programs; the classes are in datasets, grasp and loading",
    ),
    (
        r"option convert (split_seed|order_seed|seed|slots|export_as|sidecar_frame|label_frame|labels_orientation|pairs"
        r"|companions|origin|first_pixel|like|layout|angle_convention|named_splits|labels|bad_labels|classes|folders"
        r"|(image|label)_(key|column)|features)|(folder --classes|voc --task) .*",
        "one word per option; the manifest records the new name",
    ),
    (r"coco --split .*", "--split replaces the splits of the annotation files, which was an error"),
    (r".* --preset \w+", "the manifest records the preset, which GraspDataset uses"),
    (r".* --label-frame (stored|upright)", "--labels-orientation is for masks and depth of all sources, too"),
    (r".* --layout split/class", "--folders is for image folders, --layout for published layouts of pairs"),
    (r"(hdf5|n5|npy|npz) --(image|label)-key .*", "--feature declares all fields of arrays"),
    (r"option convert labels_from", "the folder that Image2LMDB packed has the images and the labels"),
    (r"table.*, halved test/metadata\.csv", "tables of one set whose columns differ are an error"),
)

# Files of the index since version 2 of packs, which FROZEN does not write. They are not compared, nor is the version.
NEW_FILES = re.compile(r"(values|value_ends|size|count|row_values|box_size)-.*")

# Words of the command line, each added alone to the conversion of every tree.
GENERAL = (
    "--resize 32",
    "--resize 40x24",
    "--exif rotate",
    "--validate header",
    "--on-error skip",
    "--order shuffled",
    "--order shuffled --order-seed 3",
    "--part-size 2K",
    "--part-size 0",
    "--extras 0",
    "--fields key",
    "--split train=0.6 --split val=0.4",
    "--split train=0.5 --split val=0.5 --split-seed 4 --split-by object_id",
    "--preset ggcnn",
    "--preset grconvnet",
    "--threads 1",
    "--resize 32 --codec image=jpeg:90",
    "--codec image=png",
    "--codec image=raw",
    "--codec rgb=ycc420 --resize 32",
    "--codec depth=raw:float16",
    "--codec mask=png",
    "--max-pixels 100",
)
RENAMED = (  # options since FROZEN: where the new one exists, it is typed
    ("--mask-colours", "--mask-colors"),
    ("--unknown-colours", "--unknown-colors"),
    ("--order-seed", "--seed"),
    ("--split-seed", "--seed"),
    ("--labels strict", "--bad-labels error"),
    ("--labels lenient", "--bad-labels skip"),
    ("--classes auto", "--folders auto"),
    ("--classes folders", "--folders class"),
    ("--classes none", "--folders none"),
    ("--pairs samples", "--companions samples"),
    ("--like cv", "--angle-convention cv"),
    ("--like", "--layout"),
    ("--features image=image/encoded,label", "--feature image=image/encoded --feature label"),
    ("--label-frame", "--labels-orientation"),
    ("--origin zero", "--first-pixel 0"),
    ("--origin one", "--first-pixel 1"),
)
RENAMED_BY_KIND = (  # the same for sources of image folders, of tables, and of records or arrays
    ("--layout", "--folders", r"folder|jacquard|cornell|pairs|coco|voc|yolo"),
    ("--layout split", "--named-splits", r"(?!folder).*"),
    ("--image-key", "--image-column", "table"),
    ("--label-key", "--label-column", "table"),
    ("--image-key images", "--feature image=images", "(?!table).*"),
    ("--label-key labels", "--feature label=labels", "(?!table).*"),
)
OF_SOURCES = (
    "--sidecar mask=_mask.png:mask",
    "--sidecar depth=_d.png:depth:0",
    "--mask-colours voc",
    "--mask-colours voc --unknown-colours void",
    "--depth-from tiff",
    "--depth-from pcd",
    "--depth-from none",
    "--missing keep",
    "--missing skip",
    "--missing error",
    "--duplicates error",
    "--duplicates first",
    "--duplicates skip",
    "--labels strict",
    "--labels lenient",
    "--classes auto",
    "--classes folders",
    "--classes none",
    "--layout class",
    "--layout split/class",
    "--layout split",
    "--decode-with pillow",
    "--pairs samples",
    "--like duts",
    "--like voc",
    "--like cv44",
    "--like cv45",
    "--role image=images/{stem}.jpg:image --role mask=masks/{stem}.png:mask",
    "--features image=image/encoded,label=image/class/label",
    "--pixel-order rgb",
    "--image-key images",
    "--label-key labels",
    "--key-column id",
    "--group-by image",
    "--axes hwc",
    "--axes chw",
    "--task instances",
    "--task keypoints",
    "--task captions",
    "--task detect",
    "--task segment",
    "--task obb",
    "--task pose",
    "--origin zero",
    "--origin one",
    "--label-frame stored",
    "--label-frame upright",
    "--allow-empty",
    "--follow-links",
)


def damages(tree: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """A change of one file, for one file of each folder and suffix of a tree: its name -> what makes it in a copy."""
    seen = set()
    for path in sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()):
        name = path.relative_to(tree)
        kind = (name.parent, re.sub(r"[0-9a-f]{2,}", "", path.name))
        if kind in seen:
            continue
        seen.add(kind)

        def removed(copy: Path, name: Path = name) -> None:
            (copy / name).unlink()

        def emptied(copy: Path, name: Path = name) -> None:
            (copy / name).write_bytes(b"")

        def halved(copy: Path, name: Path = name) -> None:
            data = (copy / name).read_bytes()
            (copy / name).write_bytes(data[: len(data) // 2])

        def doubled(copy: Path, name: Path = name) -> None:
            (copy / "zz again" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(copy / name, copy / "zz again" / name)

        def renamed(copy: Path, name: Path = name) -> None:
            (copy / name).rename((copy / name).with_name("zz " + name.name))

        for change in (removed, emptied, halved, doubled, renamed):
            yield f"{change.__name__} {name}", change


def conversions(trees: Path) -> Iterator[tuple[str, str, str, str]]:
    """(name of the row, kind, words of the command line, damage) of every conversion."""
    from packer import formats

    for tree in sorted(trees.iterdir()):
        kind = tree.name
        yield f"{kind}", kind, f"--from {kind}", ""
        yield f"{kind} --from auto", kind, "", ""
        for name in sorted(formats.registry.names()):
            yield f"{kind} --to {name}", kind, f"--from {kind} --to {name}", ""
        for words in (*GENERAL, *OF_SOURCES):
            yield f"{kind} {words}", kind, f"--from {kind} {words}", ""
        for damage, _ in damages(tree):
            yield f"{kind}, {damage}", kind, f"--from {kind}", damage
            yield f"{kind} --missing skip, {damage}", kind, f"--from {kind} --missing skip", damage


def sha256(data: bytes) -> str:
    """The first 16 digits."""
    return hashlib.sha256(data).hexdigest()[:16]


def value_bytes(value: Any) -> bytes:
    """A value of a sample or of a batch, with its type."""
    import numpy as np

    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, Mapping):
        return b"{" + b",".join(name.encode() + b":" + value_bytes(value[name]) for name in sorted(value)) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(value_bytes, value)) + b"]"
    return repr(value).encode()


def error_outcome(error: BaseException) -> str:
    """The class and the exit code of an error."""
    return f"{type(error).__name__} {getattr(error, 'exit_code', '')}".strip()


def typed(words: str, kind: str, options: Collection[str]) -> str:
    """The words of a command line with the names that options have now."""
    if IS_FROZEN:
        return words
    for old, new in (*((old, new) for old, new, kinds in RENAMED_BY_KIND if re.fullmatch(kinds, kind)), *RENAMED):
        if new.split()[0] in options:
            words = words.replace(old, new)
    return words


def convert(source: Path, pack: Path, words: str, kind: str) -> None:
    """Run `packer convert` in this process; it prints nothing."""
    from packer.cli import registry

    command = registry.load("convert").command
    options = {option for parameter in command.params for option in parameter.opts}
    words = typed(words, kind, options)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        command.main([str(source), str(pack), *words.split()], standalone_mode=False, prog_name="packer convert")


def old_names(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a manifest under the names and values that they had at FROZEN."""
    source = options.get("source", {})
    if IS_FROZEN or not isinstance(source.get("options"), dict):
        return options
    given = dict(source["options"])
    if "source" in given:  # a pack of a pack
        return {**options, "source": {**source, "options": old_names(given)}}
    values = {"error": "strict", "skip": "lenient", 1: "one", 0: "zero"}
    for new, old in (("bad_labels", "labels"), ("first_pixel", "origin")):
        if new in given:
            given[old] = values[given.pop(new)]
    if given.pop("named_splits", False):
        given["layout"] = "split"
    for new, old in (("companions", "pairs"), ("angle_convention", "like"), ("layout", "like")):
        if new in given and not (new == "layout" and given[new] == "split"):
            given[old] = given.pop(new)
    if "folders" in given:
        folders = given.pop("folders")
        given["classes" if folders == "none" else "layout"] = folders
    if "labels_orientation" in options and not source["sidecars"]:
        given["label_frame"] = options["labels_orientation"]
        options = {name: value for name, value in options.items() if name != "labels_orientation"}
    return {**options, "source": {**source, "options": given}}


def pack_outcome(pack: Path) -> str:
    """The files of a pack without its manifest, what of the manifest is no prose, and its samples."""
    import packer
    from packer.pack import manifest as manifests

    manifest = json.loads((pack / "packer.json").read_bytes())
    recorded = manifests.read(pack)
    index = tuple(file for file in recorded.index if not NEW_FILES.fullmatch(file.name))
    renamed = dataclasses.replace(recorded, options=old_names(dict(recorded.options)), index=index)
    facts = [
        manifest["pack_id"] if renamed == recorded else renamed.sealed().pack_id,
        manifest["schema"],
        dict(renamed.options),
        *([entry[0] for entry in manifest.get(name, ())] for name in ("skipped", "incomplete")),
    ]
    files = {path.relative_to(pack).as_posix(): path for path in pack.rglob("*") if path.is_file()}
    files.pop("packer.json")
    files = {name: path for name, path in files.items() if not NEW_FILES.fullmatch(path.name)}
    stored = "".join(f"{name} {sha256(path.read_bytes())} " for name, path in sorted(files.items()))
    dataset = packer.open(pack, output="numpy")
    samples = sha256(b"".join(value_bytes(dataset[index]) for index in range(len(dataset))))
    return f"files {sha256(stored.encode())} manifest {sha256(json.dumps(facts).encode())} samples {samples}"


def converted(trees: Path, row: tuple[str, str, str, str]) -> tuple[str, str]:
    """The outcome of one conversion."""
    name, kind, words, damage = row
    with tempfile.TemporaryDirectory(prefix="baseline-") as scratch:
        source, pack = trees / kind, Path(scratch, "out.pack")
        if damage:
            copy = Path(scratch, "tree")
            shutil.copytree(source, copy, symlinks=True)
            dict(damages(source))[damage](copy)
            source = copy
        try:
            convert(source, pack, words, kind)
            return name, pack_outcome(pack)
        except BaseException as error:  # any error is an outcome
            if isinstance(error, KeyboardInterrupt):
                raise
            return name, error_outcome(error)


def batches(trees: Path) -> Iterator[tuple[str, str]]:
    """What loaders give of a few packs, with geometries."""
    import packer
    from packer.geometry import CenterCrop, Compose, RandomHorizontalFlip, RandomResizedCrop, RandomRotation, Resize

    geometries = {
        "resized": Resize(32),
        "cropped": Compose(RandomResizedCrop(24), RandomHorizontalFlip()),
        "rotated": Compose(RandomRotation(), CenterCrop(24)),
    }
    for kind in ("folder", "voc", "jacquard", "coco", "table"):
        with tempfile.TemporaryDirectory(prefix="baseline-") as scratch:
            pack = Path(scratch, "out.pack")
            convert(trees / kind, pack, f"--from {kind}", kind)
            for words, rule in geometries.items():
                try:
                    loader = packer.Loader(packer.open(pack), 2, shuffle=True, seed=3, geometry=rule, threads=2)
                    outcome = sha256(b"".join(value_bytes(batch) for _ in range(2) for batch in loader))
                except packer.errors.PackerError as error:
                    outcome = error_outcome(error)
                yield f"batches {kind} {words}", outcome


def golden_packs(folder: Path) -> Iterator[tuple[str, str]]:
    """The samples of every golden pack."""
    import packer

    for manifest in sorted(folder.rglob("packer.json")):
        dataset = packer.open(manifest.parent, output="numpy")
        samples = sha256(b"".join(value_bytes(dataset[index]) for index in range(len(dataset))))
        yield f"golden {manifest.parent.relative_to(folder)}", samples


def signatures() -> Iterator[tuple[str, str]]:
    """Each public callable with its parameters and defaults; methods of classes too."""
    import packer

    for name in sorted(packer.__all__):
        public = getattr(packer, name)
        members: dict[str, Any] = {name: public}
        if inspect.isclass(public):
            members |= {f"{name}.{key}": getattr(public, key) for key in vars(public) if not key.startswith("_")}
        elif inspect.ismodule(public):
            members |= {f"{name}.{key}": getattr(public, key) for key in getattr(public, "__all__", ())}
        for key, value in members.items():
            if inspect.isclass(value) or inspect.isroutine(value):
                parameters = inspect.signature(value).parameters.values()
                words = ", ".join(
                    f"{parameter.kind.name[:1]} {parameter.name}"
                    + ("" if parameter.default is parameter.empty else f"={parameter.default!r}")
                    for parameter in parameters
                )
                yield f"signature {key}", re.sub(r" at 0x[0-9a-f]+", "", words)


def options() -> Iterator[tuple[str, str]]:
    """Each option and argument of each command."""
    from packer.cli import registry

    for name in sorted(registry.names()):
        for parameter in registry.load(name).command.params:
            choices = getattr(parameter.type, "choices", None)
            words = f"{parameter.opts} {parameter.nargs} {parameter.multiple} {parameter.default!r} {choices}"
            yield f"option {name} {parameter.name}", re.sub(r" at 0x[0-9a-f]+", "", words)


def imports() -> Iterator[tuple[str, str]]:
    """What heavy modules light imports bring."""
    for words in ("import packer", "from packer.cli import main", "from packer import errors, schema, registry"):
        program = f"{words}; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        yield f"import weight of `{words}`", done.stdout.strip() or f"exit {done.returncode}"


def rows(trees: Path, golden: Path, only: str) -> dict[str, str]:
    """Every row of the packer that this process imports."""
    found = {}
    for kind in (signatures(), options(), imports(), golden_packs(golden), batches(trees)):
        found |= dict(kind)
    todo = [row for row in conversions(trees) if only in row[0]]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = pool.map(converted, [trees] * len(todo), todo, chunksize=8)
        for number, (name, outcome) in enumerate(results):
            if number % 100 == 0 and sys.stderr.isatty():
                print(f"\r{number} of {len(todo)}", end="", file=sys.stderr)
            found[name] = outcome
    return {name: outcome for name, outcome in found.items() if only in name}


def write(commit: str) -> None:
    """Unpack COMMIT, build the trees, record the rows; all of it with the code of that commit."""
    shutil.rmtree(HOME, ignore_errors=True)
    TIP.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", TIP], input=archive.stdout, check=True)
    build = "import sys, pathlib; from tests.support.source_trees import BUILDERS\n"
    build += "for name, build in BUILDERS.items(): build(pathlib.Path(sys.argv[1], name))"
    environment = {**os.environ, "PYTHONPATH": str(TIP), "PYTHONSAFEPATH": "1"}
    subprocess.run([sys.executable, "-c", build, TREES], cwd=TIP, env=environment, check=True)
    program = [sys.executable, __file__, "rows", TREES, TIP / "tests/golden"]
    done = subprocess.run(program, cwd=TIP, env=environment, stdout=subprocess.PIPE, check=True)
    ROWS.write_bytes(done.stdout)
    print(f"{len(json.loads(done.stdout))} rows of {commit}")


def compare(only: str) -> int:
    """Print how the rows of this checkout differ from the recorded ones; returns how many do so without a reason."""
    if not ROWS.exists():
        write(FROZEN)
    program = [sys.executable, __file__, "rows", TREES, TIP / "tests/golden", "--only", only]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(program, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    now = json.loads(done.stdout)
    before = {name: outcome for name, outcome in json.loads(ROWS.read_text()).items() if only in name}
    reasons: dict[str, int] = {}
    unexpected = 0
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, "(none)"), now.get(name, "(none)")
        if old == new:
            continue
        reason = next((reason for pattern, reason in INTENDED if re.fullmatch(pattern, name)), None)
        if reason is None:
            unexpected += 1
            print(f"{name}\n  before: {old}\n  now:    {new}")
        else:
            reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        print(f"{count} rows differ on purpose: {reason}")
    print(f"{len(before)} rows, {unexpected} differ without a reason, {sum(reasons.values())} with one")
    return unexpected


def main(words: Sequence[str]) -> int:
    """The command line of this file."""
    parser = argparse.ArgumentParser(
        prog="scripts/baseline", description="Compare this checkout with an earlier commit."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("write", help="record an earlier commit").add_argument("commit", nargs="?", default=FROZEN)
    verbs.add_parser("compare", help="compare with it").add_argument("--only", default="", metavar="TEXT")
    inner = verbs.add_parser("rows", help="print the rows of the packer that is imported, as JSON")
    inner.add_argument("trees", type=Path)
    inner.add_argument("golden", type=Path)
    inner.add_argument("--only", default="")
    given = parser.parse_args(words)
    if given.verb == "write":
        write(given.commit)
        return 0
    if given.verb == "compare":
        return 1 if compare(given.only) else 0
    json.dump(rows(given.trees, given.golden, given.only), sys.stdout, indent=0, sort_keys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
