"""Loader in several processes: every sample exactly once over the ranks, as many steps on each, whatever divides."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

import packer
from packer import Loader
from packer.geometry import RandomResizedCrop
from tests.support import marked_packs, warm_python

COUNT = 23
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.pack(tmp_path_factory.mktemp("posed") / "posed.pack", COUNT)


def test_the_augmentation_of_a_sample_does_not_depend_on_its_rank(path: Path) -> None:
    def images(rank: int, world_size: int) -> dict[str, bytes]:
        dataset = packer.open(path, fields=("key", "image"), geometry=RandomResizedCrop(20))
        loader = Loader(dataset, 4, shuffle=True, seed=3, rank=rank, world_size=world_size)
        pairs = [(key, image) for batch in loader for key, image in zip(batch["key"], batch["image"], strict=True)]
        return {key: image.numpy().tobytes() for key, image in pairs}

    assert images(0, 2) | images(1, 2) == images(0, 1)


SCRIPT = """
import json, sys
import torch.distributed as distributed
import packer
rank, store, pack, workers = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
SIZE = 11  # 12 and 11 samples a rank: the second of two batches has one sample on each

def made(size=SIZE, **given):
    return packer.Loader(packer.open(pack, fields=("key",)), size, shuffle=True, num_workers=workers, **given)

def keys(batches):
    return [batch["key"] for batch in batches]

loader, resumed, stream, swapped = made(), made(), made(4, steps_per_epoch=2), made(rank=1 - rank, world_size=2)
explicit = made(rank=rank, world_size=2)
batches = iter(explicit)
begun = next(batches)["key"]
state = json.loads(json.dumps(explicit.state_dict()))
left = keys(batches)
resumed.load_state_dict(state)  # of two ranks, where there is one as yet
found = {"alone": [len(loader), keys(loader)], "stream alone": keys(stream)}
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
found["lengths"] = [len(loader), len(stream), len(swapped)]
found["after"] = keys(after := made())
found["sampler"] = keys(packer.Loader(packer.open(pack, fields=("key",)), 4, sampler=[1, 2]))
found["together"] = keys(loader)
found["rest"] = [keys(resumed), left]
found["pass"] = [begun, *left]
found["stream"] = [key for _ in range(3) for keys_of in keys(stream) for key in keys_of]
found["swapped"] = keys(swapped)
loader.set_epoch(0)
batches = iter(loader)
next(batches)
distributed.destroy_process_group()
found["state"] = [loader.state_dict(), state]
found["rest"].append(keys(batches))
print(json.dumps(found))
for each in (loader, resumed, stream, swapped, explicit, after):
    each.close()
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_share_their_passes_whether_created_before_the_process_group_or_after(
    tmp_path: Path, path: Path, workers: int
) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{SCRIPT}"
    with ExitStack() as stack:
        given = [(str(rank), str(tmp_path / "store"), str(path), str(workers)) for rank in (0, 1)]
        processes = [stack.enter_context(warm_python.started(code, *words)) for words in given]
        ended = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended
    one, other = (json.loads(output.splitlines()[-1]) for output, _ in ended)
    names = [f"scene {number:04d}" for number in range(COUNT)]
    for found in (one, other):
        assert found["alone"][0] == 3 and sorted(key for batch in found["alone"][1] for key in batch) == names
        assert found["lengths"] == [2, 2, 2]
        assert found["sampler"] == [["scene 0001", "scene 0002"]], "a sampler is told by its caller"
        assert found["rest"] == [found["rest"][0]] * 3, "the state does not resume its own rank"
        assert found["state"][0] == found["state"][1], "the state is not that of its pass"
    for name in ("together", "pass", "swapped", "after"):
        assert len(one[name]) == len(other[name]) == 2
        assert sorted(key for batch in one[name] + other[name] for key in batch) == names
    assert one["swapped"] == other["pass"] and other["swapped"] == one["pass"], "rank= does not win"
    assert one["stream alone"] == other["stream alone"]
    turns = [key for turn in zip(one["stream"], other["stream"], strict=True) for key in turn]
    stream = [key for batch in one["stream alone"] for key in batch] + turns
    assert sorted(stream[:COUNT]) == sorted(stream[COUNT : 2 * COUNT]) == names
