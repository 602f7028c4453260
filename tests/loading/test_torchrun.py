"""Under torchrun, with gloo on the CPU: every sample on one rank, as many steps on each, one open pack per process."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import marked_packs, warm_python

COUNT = 23
ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
from pathlib import Path
sys.path.insert(0, {root!r})
import torch
import torch.distributed as distributed
from torch.utils.data import DataLoader, DistributedSampler
import packer
from packer.loading import CUDAPrefetcher, DataLoaderX

pack, out, state = sys.argv[1:4]
distributed.init_process_group("gloo")
rank = distributed.get_rank()

def keys(batches, most=99):
    found = []
    for at, batch in enumerate(batches):
        found.append(batch["key"])
        distributed.barrier()  # hangs, where ranks disagree on the number of steps
        if at + 1 == most:
            break
    return found

train, val = packer.open(pack), packer.open(pack, fields=("key", "label"))
loader = packer.Loader(train, 2, shuffle=True, normalize=((0.5,) * 3, (0.25,) * 3))
found = {{"steps": len(loader)}}
if Path(state).exists():
    loader.load_state_dict(json.loads(Path(state).read_text()))
    found["rest"] = keys(loader)
else:
    found["loader"] = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        found["loader"].append(keys(loader))
    sampler = DistributedSampler(val)
    stock = DataLoaderX(val, 2, sampler=sampler)
    found["stock"] = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        found["stock"].append(keys(CUDAPrefetcher(stock, "cpu")))
    loader.set_epoch(7)
    found["begun"] = keys(loader, 2)
    if rank == 0:
        Path(state).write_text(json.dumps(loader.state_dict()))
links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
maps = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/part-" in line]
found["open"] = {{"files": [each for each in links if "/part-" in each], "maps": maps}}
Path(out, f"{{rank}}.json").write_text(json.dumps(found))
distributed.destroy_process_group()
"""


def run(folder: Path, pack: Path, state: Path, ranks: int) -> list[dict[str, Any]]:
    """What each rank found."""
    folder.mkdir()
    program = folder / "program.py"
    program.write_text(PROGRAM.format(root=str(ROOT)))
    torchrun = "from torch.distributed.run import main; main()"
    given = [str(each) for each in (program, pack, folder, state)]
    words = ["--standalone", "--log-dir", str(folder / "logs"), "--nproc-per-node", str(ranks), *given]
    done = warm_python.run(torchrun, *words, capture=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def check(every: list[list[list[str]]], *, steps: int, twice: int = 0) -> list[str]:
    """All keys of one pass: as many steps on each rank, none empty; returns those of all ranks, sorted."""
    assert {len(batches) for batches in every} == {steps}
    assert all(0 < len(batch) <= 2 for batches in every for batch in batches)
    keys = sorted(key for batches in every for batch in batches for key in batch)
    assert len(keys) - len(set(keys)) == twice
    return keys


@pytest.mark.full  # by default test_distributed.py has two ranks
@pytest.mark.parametrize(("ranks", "others"), [(2, 1), (2, 3), (3, 2)])
def test_ranks_of_torchrun(tmp_path: Path, ranks: int, others: int) -> None:
    names = [f"scene {number:04d}" for number in range(COUNT)]
    pack, state = marked_packs.pack(tmp_path / "posed.pack", COUNT), tmp_path / "state.json"
    found = run(tmp_path / "first", pack, state, ranks)
    steps = -(-COUNT // (2 * ranks))
    assert {each["steps"] for each in found} == {steps}
    for epoch in range(2):
        assert check([each["loader"][epoch] for each in found], steps=steps) == names
        padded = -COUNT % ranks  # DistributedSampler gives samples twice, to fill up
        assert set(check([each["stock"][epoch] for each in found], steps=steps, twice=padded)) == set(names)
    assert found[0]["loader"][0] != found[0]["loader"][1], "both epochs have one order"
    for each in found:
        assert len(each["open"]["files"]) == len(set(each["open"]["files"])), "a part is open twice in one process"
        assert len(each["open"]["maps"]) == len(set(each["open"]["maps"])), "a part is mapped twice in one process"
        assert each["open"]["maps"]
    begun = check([each["begun"] for each in found], steps=2)
    rest = run(tmp_path / "second", pack, state, others)
    left = [each["rest"] for each in rest]
    assert sorted(begun + check(left, steps=-(-(COUNT - len(begun)) // (2 * others)))) == names
