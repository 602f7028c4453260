"""Conversions on a real Ray cluster of several machines on this one: scripts/foreign ray makes its environment.

Each machine is a raylet of its own with its workers; killing one is killing its processes. All of it listens on the
loopback address, and reports nothing to anybody.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.foreign_environments import said_by

pytestmark = pytest.mark.foreign
ROOT = Path(__file__).resolve().parents[2]

# Prints a line of JSON. Usage: PROGRAM FOLDER ROOT: a new one, and that of the repository.
PROGRAM = r"""
import hashlib, json, os, signal, subprocess, sys, threading, time
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
sys.path.insert(0, sys.argv[2])
from tests.support.object_server import ObjectServer
server = ObjectServer()
os.environ.update(server.environment)  # before the machines, which inherit it
server.start()
from pathlib import Path
import cv2, numpy as np, ray
from ray.cluster_utils import Cluster
import packer
from packer.conversion.machine_versions import library_versions
from packer.conversion.engines import _cluster_engine
from packer.errors import PackerError

root = Path(sys.argv[1])
random = np.random.default_rng(1)
for number in range(160):
    path = root / f"in/c{number % 4}/{number:04d}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    small = random.integers(0, 255, (40, 60, 3), np.uint8)
    cv2.imwrite(str(path), cv2.resize(small, (600, 400), interpolation=cv2.INTER_CUBIC))
OPTIONS = {"part_bytes": 4_000_000, "resize": 300, "codecs": {"image": "png"}}


def digest(folder):
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


class Killer(threading.Thread):
    # Acts once per try that begins, until so many are done.
    def __init__(self, target, act, most):
        super().__init__(daemon=True)
        self.tries = target.with_name(f".{target.name}.partial") / "attempts"
        self.act, self.most, self.done = act, most, 0
        self.over = threading.Event()
        self.start()

    def run(self):
        seen = set()
        while self.done < self.most and not self.over.wait(0.005):
            for path in self.tries.glob("*/node"):
                text = path.read_text()
                if path not in seen and text and not (path.parent / "record.json").exists():
                    seen.add(path)
                    self.act(int(text.rpartition(" ")[2]))
                    self.done += 1
                    break


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


node = {"object_store_memory": 80 << 20}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **node})
machines = [cluster.add_node(num_cpus=1, **node) for _ in range(2)]
where = {"engine": "ray", "ray_address": cluster.address}
packer.convert(root / "in", root / "one", **OPTIONS)
clean = digest(root / "one")
said = {"parts": len(list((root / "one").glob("part-*")))}


def same(name, **more):
    summary = packer.convert(root / "in", root / name, **OPTIONS, **where, **more)
    said[name] = digest(root / name) == clean
    return summary


(root / "disk").mkdir()
same("plain")
same("scratch", worker_scratch=root / "disk")
said["disk"] = os.listdir(root / "disk")

killer = Killer(root / "crash", kill, 3)
same("crash")
said["crashes"] = killer.done

killer = Killer(root / "death", lambda pid: cluster.remove_node(machines.pop(), allow_graceful=False), 1)
same("death")
said["deaths"] = killer.done
machines.append(cluster.add_node(num_cpus=1, **node))

killer = Killer(root / "never", kill, 10_000)
try:
    same("never")
except PackerError as error:
    said["never"] = f"{type(error).__name__}: {error}"
killer.over.set()
killer.join()
packer.convert(root / "in", root / "never", **OPTIONS)
said["after never"] = digest(root / "never") == clean

words = ["convert", root / "in", root / "driver", "--part-size", "4000000", "--resize", "300", "--codec", "image=png"]
words += ["--engine", "ray", "--ray-address", cluster.address]
driver = subprocess.Popen([sys.executable, "-m", "packer", *words], stderr=subprocess.DEVNULL)
partial = root / ".driver.partial"
while len(list(partial.glob("done/*.json"))) < 2:
    assert driver.poll() is None, driver.returncode
    time.sleep(0.01)
driver.kill()
driver.wait()
records = {path: path.stat().st_ino for path in partial.glob("done/*.json")}
parts = {path.name: (partial / "pack" / path.name).stat().st_ino for path in partial.glob("pack/part-*")}
done = [json.loads(path.read_bytes())["part"] for path in records]
summary = same("driver")
said["driver resumed"] = summary.resumed_samples >= sum(part["samples"] for part in done) > 0
said["driver kept"] = all((root / "driver" / part["name"]).stat().st_ino == parts[part["name"]] for part in done)

for name in ("s1", "s2"):
    (root / name).mkdir()
url = "s3://b/stored.pack"


def stored():
    return {key.removeprefix("stored.pack/"): found.data for key, found in server.objects.items()}


files = [path for path in (root / "one").rglob("*") if path.is_file()]
expected = {path.relative_to(root / "one").as_posix(): path.read_bytes() for path in files}
there = {**where, "worker_scratch": root / "disk"}
packer.convert(root / "in", url, **OPTIONS, **there, scratch=root / "s1")
said["stored"] = stored() == expected
said["stored scratch"] = os.listdir(root / "s1") + os.listdir(root / "disk")

server.objects.clear()
words[2] = url
words += ["--worker-scratch", root / "disk", "--scratch", root / "s1"]
driver = subprocess.Popen([sys.executable, "-m", "packer", *map(str, words)], stderr=subprocess.DEVNULL)
while sum("/.partial/done/" in key for key in list(server.objects)) < 2:
    assert driver.poll() is None, driver.returncode
    time.sleep(0.01)
driver.kill()
driver.wait()
time.sleep(1)  # until its tasks have ended
done = {name[14:24]: stored()[f"{name[14:24]}.lmdb"] for name in stored() if name.startswith(".partial/done/")}
kept = {name: server.objects[f"stored.pack/{name}.lmdb"].modified for name in done}
machine = threading.Timer(0.5, lambda: cluster.remove_node(machines.pop(), allow_graceful=False))
machine.start()
summary = packer.convert(root / "in", url, **OPTIONS, **there, scratch=root / "s2")  # the driver's folder is lost
machine.join()
machines.append(cluster.add_node(num_cpus=1, **node))
said["stored driver"] = stored() == expected
said["stored resumed"] = summary.resumed_samples > 0
said["stored kept"] = len(done) >= 2 and all(
    server.objects[f"stored.pack/{name}.lmdb"].modified == at for name, at in kept.items()
)

_cluster_engine.library_versions = lambda *, pixels: {**library_versions(pixels=pixels), "numpy": "9.9"}
try:
    same("versions")
except PackerError as error:
    said["versions"] = f"{type(error).__name__}: {error}"
_cluster_engine.library_versions = library_versions

said["nobody"] = []
for address in ("127.0.0.1:9", "ray://127.0.0.1:10001"):  # the process is connected to another one already
    words = ["-m", "packer", "convert", root / "in", root / "nobody", "--engine", "ray", "--ray-address", address]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    said["nobody"].append([done.returncode, done.stderr.strip().splitlines()[-1]])

interrupted = subprocess.Popen(
    [sys.executable, "-m", "packer", "convert", root / "in", root / "stop", *words[5:8], cluster.address],
    stderr=subprocess.PIPE,
    text=True,
)
while not list((root / ".stop.partial").glob("attempts/*/node")):
    assert interrupted.poll() is None
    time.sleep(0.01)
interrupted.send_signal(signal.SIGINT)
said["interrupted"] = [interrupted.communicate()[1].strip().splitlines()[-1], interrupted.returncode]

(root / "in/c0/0004.png").write_bytes(b"\x89PNG")
texts = []
for more in ({}, where):
    try:
        packer.convert(root / "in", root / "bad", **OPTIONS, **more)
    except PackerError as error:
        texts.append(str(error))
said["bad"] = len(texts) == 2 and texts[0] == texts[1]
said["left"] = sorted(os.listdir(root))
print(json.dumps(said), flush=True)
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program says of its conversions."""
    lines = said_by("ray", PROGRAM, tmp_path_factory.mktemp("ray"), ROOT).splitlines()  # Ray prints some of its own
    found: dict[str, Any] = next(json.loads(line) for line in lines if line.startswith('{"parts"'))
    return found


def test_the_pack_is_that_of_one_machine_whatever_is_killed(said: dict[str, Any]) -> None:
    assert said["parts"] >= 8
    assert (said["plain"], said["scratch"], said["disk"]) == (True, True, [])
    assert (said["crash"], said["crashes"]) == (True, 3)
    assert (said["death"], said["deaths"]) == (True, 1)
    assert said["left"] == [
        ".stop.partial",
        "crash",
        "death",
        "disk",
        "driver",
        "in",
        "never",
        "one",
        "plain",
        "s1",
        "s2",
        "scratch",
    ]


def test_a_part_whose_workers_all_crash_is_named_and_the_others_are_kept(said: dict[str, Any]) -> None:
    assert said["never"].startswith("StorageError: part-000")
    assert said["never"].count("WorkerCrashedError") == 4
    assert said["never"].count(", process ") == 4
    assert said["after never"]


def test_a_killed_driver_or_machine_loses_no_finished_part(said: dict[str, Any]) -> None:
    assert (said["driver"], said["driver resumed"], said["driver kept"]) == (True, True, True)
    assert (said["stored"], said["stored scratch"]) == (True, [])
    # Another driver goes on, whose scratch folder is a new one.
    assert (said["stored driver"], said["stored resumed"], said["stored kept"]) == (True, True, True)


def test_other_versions_are_refused_before_anything_is_built(said: dict[str, Any]) -> None:
    assert said["versions"].startswith("InvalidRequest: ")
    assert "here 9.9: a pack could have other bytes" in said["versions"]


def test_an_address_where_no_cluster_is_ends_at_once_and_says_so(said: dict[str, Any]) -> None:
    (silent, silent_text), (client, client_text) = said["nobody"]
    assert (silent, client) == (2, 2)
    assert "--ray-address 127.0.0.1:9: no Ray cluster answers: " in silent_text
    assert "ray://127.0.0.1:10001: run the command on a machine of the cluster" in client_text


def test_an_interrupt_ends_it_as_anywhere(said: dict[str, Any]) -> None:
    """Ray forgets which signal it was where it waits itself."""
    text, code = said["interrupted"]
    known = [f"packer: interrupted{which}; the same command continues" for which in ("", " (Ctrl-C)")]
    assert text in known
    assert code == 130


def test_bad_samples_are_told_as_on_one_machine(said: dict[str, Any]) -> None:
    assert said["bad"]
