"""Programs of users that change a data set: one for each tool and task, the best way that the tool documents.

Each program is a text. `TOOLS` has the imports of a tool, the program that makes a data set, and that of each task. A
program finds the names of `GIVEN`. The lines of a task, without imports, are the calls that the benchmark counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

GIVEN = """
import json, os, pathlib, sys, time
given = json.loads(sys.argv[1])
a, b, out, root = (given[name] for name in ("a", "b", "out", "root"))
name, number, dropped, labels = (given[name] for name in ("name", "number", "dropped", "labels"))
def listed(folder):
    folders = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    return [
        (path, f"{each.name}/{path.name}", label)
        for label, each in enumerate(folders)
        for path in sorted(each.iterdir())
    ]
def sample(entry):
    path, key, label = entry
    return {"key": key, "image": path.read_bytes(), "label": label}
def key(sample):
    return sample["key"]
def written(folder):
    return listed(given[folder])
"""
TASKS = {
    "append": "append 1 %",
    "filter": "filter to 10 %",
    "correct": "correct 5 labels",
    "drop": "drop 7 samples",
    "join": "join two sets",
    "mix": "mix 0.7/0.3, first batch",
    "sample": "random 10 %",
    "write": "write from own code",
}


@dataclass(frozen=True)
class Tool:
    """What one tool needs.

    Attributes:
        imports: the imports, which are not measured and not counted.
        make: writes the data set `out` of the samples of the folder `entries`.
        tasks: the program of each task.
        in_code: the tasks whose result is not kept: every program that trains repeats these lines.
        anew: the tasks for which all kept records are written again, because the tool has no other way.
        result: sets `labels_of`, key -> label of the result at `path`, or of `found`. It checks the task.
        places: task -> the name of the folder with the result, where it is not `out`.
    """

    imports: str
    make: str
    tasks: Mapping[str, str]
    result: str
    in_code: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()
    places: Mapping[str, str] = field(default_factory=dict)


_PACKER = Tool(
    imports="""
import packer, packer.conversion.convert, packer.datasets.rows_and_columns, packer.loading.loader
from packer.geometry import RandomResizedCrop
""",
    make="packer.convert(given[entries], out)",
    tasks={
        "append": 'packer.append(a, given["new"])',
        "filter": "packer.open(a).where(f\"label == '{name}'\").save(out)",
        "correct": 'packer.open(a).with_column("label", labels).save(out)',
        "drop": "packer.open(a).drop(dropped).save(out)",
        "join": "packer.concat(packer.open(a), packer.open(b)).save(out)",
        "mix": """
mix = packer.Mix([packer.open(a), packer.open(b)], weights=[0.7, 0.3])
train = packer.Loader(mix, batch_size=10, shuffle=True, geometry=RandomResizedCrop(64))
first = next(iter(train))
""",
        "sample": "found = packer.open(a).sample(0.1, seed=0)",
        "write": """
with packer.Writer(out, fields={"image": "image", "label": "number"}) as writer:
    for each in map(sample, written("photos")):
        writer.write({"image": each["image"], "label": each["label"]}, key=each["key"])
""",
    },
    in_code=frozenset({"mix", "sample"}),
    result="""
dataset = packer.open(path)
labels_of = dict(zip(map(dataset.key, range(len(dataset))), dataset.column("label").tolist()))
""",
    places={"append": "a"},
)
_LITDATA_OPTIMIZE = 'output_dir=out, chunk_bytes="4MB", num_workers=2, start_method="fork", key_fn=key, verbose=False'
# with key_fn, an append fails: "Duplicate keys are not allowed in the keys sidecar"
_LITDATA_APPEND = _LITDATA_OPTIMIZE.replace("=out", "=a").replace("key_fn=key, ", "")
_LITDATA = Tool(
    imports="import litdata",
    make=f"litdata.optimize(fn=sample, inputs=written(entries), {_LITDATA_OPTIMIZE})",
    tasks={
        "append": f"""
litdata.optimize(fn=sample, inputs=written("new"), mode="append", {_LITDATA_APPEND})
""",
        "filter": f"""
dataset = litdata.StreamingDataset(a)
kept = [at for at in range(len(dataset)) if dataset[at]["label"] == number]
def copied(at):
    return {{**dataset[at], "image": bytes(dataset[at]["image"])}}
litdata.optimize(fn=copied, inputs=kept, {_LITDATA_OPTIMIZE})
""",
        "correct": """
dataset = litdata.StreamingDataset(a)
with litdata.dataset_update(a) as update:
    for each, label in labels.items():
        update[each] = {**dataset[each], "image": bytes(dataset[each]["image"]), "label": label}
    update.commit()
""",
        "drop": f"""
dataset = litdata.StreamingDataset(a)
kept = [at for at in range(len(dataset)) if dataset[at]["key"] not in dropped]
def copied(at):
    return {{**dataset[at], "image": bytes(dataset[at]["image"])}}
litdata.optimize(fn=copied, inputs=kept, {_LITDATA_OPTIMIZE})
""",
        "join": "litdata.merge_datasets([a, b], out)",
        "mix": """
datasets = [litdata.StreamingDataset(a, shuffle=True), litdata.StreamingDataset(b, shuffle=True)]
mix = litdata.CombinedStreamingDataset(datasets, weights=[0.7, 0.3], iterate_over_all=False)
first = next(iter(litdata.StreamingDataLoader(mix, batch_size=10, collate_fn=list)))
""",
        "sample": "found = litdata.StreamingDataset(a, subsample=0.1, shuffle=True)",
        "write": f'litdata.optimize(fn=sample, inputs=written("photos"), {_LITDATA_OPTIMIZE})',
    },
    in_code=frozenset({"mix", "sample"}),
    anew=frozenset({"filter", "drop", "join"}),
    result="""
dataset = litdata.StreamingDataset(path)
labels_of = {each["key"]: each["label"] for each in map(dataset.__getitem__, range(len(dataset)))}
""",
    places={"append": "a", "correct": "a"},
)
_MDS = 'columns={"key": "str", "image": "bytes", "label": "int"}, size_limit=4 << 20'
_MOSAIC = Tool(
    imports="""
from benchmarks.peers.streaming import library
streaming = library()
from streaming.base.util import clean_stale_shared_memory, merge_index
clean_stale_shared_memory()
""",
    make=f"""
with streaming.MDSWriter(out=out, {_MDS}) as writer:
    for each in map(sample, written(entries)):
        writer.write(each)
""",
    tasks={
        "append": f"""
with streaming.MDSWriter(out=root + "/new", {_MDS}) as writer:
    for each in map(sample, written("new")):
        writer.write(each)
merge_index([a + "/index.json", root + "/new/index.json"], root)
""",
        "filter": f"""
with streaming.MDSWriter(out=out, {_MDS}) as writer:
    for each in streaming.LocalDataset(a):
        if each["label"] == number:
            writer.write(each)
""",
        "correct": f"""
with streaming.MDSWriter(out=out, {_MDS}) as writer:
    for each in streaming.LocalDataset(a):
        writer.write({{**each, "label": labels.get(each["key"], each["label"])}})
""",
        "drop": f"""
with streaming.MDSWriter(out=out, {_MDS}) as writer:
    for each in streaming.LocalDataset(a):
        if each["key"] not in dropped:
            writer.write(each)
""",
        "join": 'merge_index([a + "/index.json", b + "/index.json"], root)',
        "mix": """
streams = [streaming.Stream(local=a, proportion=0.7), streaming.Stream(local=b, proportion=0.3)]
mix = streaming.StreamingDataset(streams=streams, batch_size=10, shuffle=True, batching_method="stratified")
first = next(iter(streaming.StreamingDataLoader(mix, batch_size=10, collate_fn=list)))
""",
        "sample": "found = streaming.StreamingDataset(streams=[streaming.Stream(local=a, repeat=0.1)], batch_size=1)",
        "write": f"""
with streaming.MDSWriter(out=out, {_MDS}) as writer:
    for each in map(sample, written("photos")):
        writer.write(each)
""",
    },
    in_code=frozenset({"mix", "sample"}),
    anew=frozenset({"filter", "correct", "drop"}),
    result='labels_of = {each["key"]: each["label"] for each in streaming.LocalDataset(path)}',
    places={"append": "root", "join": "root"},
)
_TAR = """
pathlib.Path(out).mkdir()
with webdataset.ShardWriter(out + "/%06d.tar", maxsize=4 << 20, verbose=0) as writer:
    for each in {source}:
        {write}
"""
_TAR_WRITE = """writer.write({"__key__": each["key"][:-4], "jpg": each["image"], "cls": each["label"]})"""
_WEBDATASET = Tool(
    imports="""
import webdataset
def tars(*folders):
    return [str(path) for folder in folders for path in sorted(pathlib.Path(folder).glob("*.tar"))]
""",
    make=_TAR.format(source="map(sample, written(entries))", write=_TAR_WRITE),
    tasks={
        "append": """
with webdataset.ShardWriter(a + "/new-%06d.tar", maxsize=4 << 20, verbose=0) as writer:
    for each in map(sample, written("new")):
        writer.write({"__key__": each["key"][:-4], "jpg": each["image"], "cls": each["label"]})
""",
        "filter": _TAR.format(
            source="webdataset.WebDataset(tars(a), shardshuffle=False)",
            write='writer.write(each) if int(each["cls"]) == number else None',
        ),
        "correct": """
changes = {each[:-4]: {"cls": str(label).encode()} for each, label in labels.items()}
found = webdataset.WebDataset(tars(a), shardshuffle=False).compose(webdataset.associate(changes))
""",
        "drop": """
keys = {each[:-4] for each in dropped}
found = webdataset.WebDataset(tars(a), shardshuffle=False).select(lambda each: each["__key__"] not in keys)
""",
        "join": "found = webdataset.WebDataset(tars(a, b), shardshuffle=False)",
        "mix": """
sets = [webdataset.WebDataset(tars(each), shardshuffle=100).shuffle(1000) for each in (a, b)]
mix = webdataset.RandomMix(sets, probs=[0.7, 0.3])
first = next(iter(webdataset.DataPipeline(mix, webdataset.batched(10, collation_fn=list))))
""",
        "sample": "found = webdataset.WebDataset(tars(a), shardshuffle=False).rsample(0.1)",
        "write": _TAR.format(source='map(sample, written("photos"))', write=_TAR_WRITE),
    },
    in_code=frozenset({"correct", "drop", "join", "mix", "sample"}),
    anew=frozenset({"filter"}),
    result="""
source = found if "found" in globals() else webdataset.WebDataset(tars(path), shardshuffle=False)
labels_of = {each["__key__"] + ".jpg": int(each["cls"]) for each in source}
""",
    places={"append": "a"},
)
_HF_TASKS = {
    "append": """
datasets.Dataset.from_list([sample(each) for each in written("new")], features=features).save_to_disk(out)
found = datasets.concatenate_datasets([datasets.load_from_disk(a), datasets.load_from_disk(out)])
""",
    "filter": 'found = datasets.load_from_disk(a).filter(lambda label: label == number, input_columns="label")',
    "correct": """
old = datasets.load_from_disk(a)
column = [labels.get(key, label) for key, label in zip(old["key"], old["label"])]
found = old.remove_columns("label").add_column("label", column, feature=features["label"])
""",
    "drop": """
old = datasets.load_from_disk(a)
found = old.select([at for at, key in enumerate(old["key"]) if key not in dropped])
""",
    "join": "found = datasets.concatenate_datasets([datasets.load_from_disk(a), datasets.load_from_disk(b)])",
    "mix": """
sets = [datasets.load_from_disk(each).shuffle(seed=0) for each in (a, b)]
mix = datasets.interleave_datasets(sets, probabilities=[0.7, 0.3], seed=0)
first = next(mix.iter(10))
""",
    "sample": """
found = datasets.load_from_disk(a).shuffle(seed=0)
found = found.select(range(len(found) // 10))
""",
    "write": """
def samples():
    yield from map(sample, written("photos"))
datasets.Dataset.from_generator(samples, features=features).save_to_disk(out, max_shard_size="4MB")
""",
}
_HF_IMPORTS = """
import datasets
datasets.disable_progress_bars()
names = sorted(path.name for path in pathlib.Path(given["photos"]).iterdir())
features = datasets.Features(
    {"key": datasets.Value("string"), "image": datasets.Image(decode=False), "label": datasets.ClassLabel(names=names)}
)
def sample(entry):
    path, key, label = entry
    return {"key": key, "image": {"bytes": path.read_bytes()}, "label": label}
"""
_HF_MAKE = _HF_TASKS["write"].replace('"photos"', "entries")
_HF_KEPT = frozenset({"filter", "correct", "drop", "join"})
_HF_RESULT = """
source = {source}
labels_of = dict(zip(source["key"], source["label"]))
"""
_HF = Tool(
    imports=_HF_IMPORTS,
    make=_HF_MAKE,
    tasks=_HF_TASKS,
    in_code=frozenset(_HF_TASKS) - {"write"},
    result=_HF_RESULT.format(source='found if "found" in globals() else datasets.load_from_disk(path)'),
)
_HF_SAVED = Tool(
    imports=_HF_IMPORTS,
    make=_HF_MAKE,
    tasks={task: f'{_HF_TASKS[task].rstrip()}\nfound.save_to_disk(out, max_shard_size="4MB")' for task in _HF_KEPT},
    anew=_HF_KEPT,
    result=_HF_RESULT.format(source="datasets.load_from_disk(path)"),
)
TOOLS = {
    "packer": _PACKER,
    "litdata": _LITDATA,
    "streaming": _MOSAIC,
    "webdataset": _WEBDATASET,
    "datasets": _HF,
    "datasets, saved": _HF_SAVED,
}
