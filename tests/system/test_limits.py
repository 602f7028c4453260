"""Machine: memory, quotas and file systems as the kernel's files say, in every shape that they have."""

import os
from pathlib import Path

import pytest

from packer.system.machine_limits import Limit, Machine
from tests.support.machine_files import GB, made_up

NOTHING = 9223372036854771712  # what version 1 says where there is no limit


def test_memory_is_what_the_system_can_still_give(tmp_path: Path) -> None:
    found = made_up(tmp_path / "m", total=64 * GB, available=20 * GB).memory()
    assert found == Limit("memory (MemAvailable)", 64 * GB, 20 * GB)
    assert Machine(tmp_path / "none").memory() is None


def test_a_limit_of_version_2_counts_at_every_level(tmp_path: Path) -> None:
    files = {
        "a/memory.max": "8589934592\n",
        "a/memory.current": "3221225472\n",
        "a/b/memory.max": "max\n",
        "a/b/memory.high": "4294967296\n",
        "a/b/memory.current": "1073741824\n",
        "a/b/memory.stat": "anon 5\nfile 536870912\ninactive_file 268435456\nactive_file 134217728\n",
        "memory.stat": "anon 5\n",  # the root has no limit
    }
    machine = made_up(tmp_path / "m", membership="0::/a/b", files=files)
    inner, outer = machine.cgroup_memory()
    assert (inner.total_bytes, inner.free_bytes) == (4 * GB, 3 * GB + (384 << 20))
    assert (outer.total_bytes, outer.free_bytes) == (8 * GB, 5 * GB)
    assert inner.name.endswith("cgroup/a/b")


@pytest.mark.parametrize("path", ["/docker/1234", "/"])
def test_a_limit_of_version_1_is_found_where_the_container_sees_it(tmp_path: Path, path: str) -> None:
    files = {
        "memory/memory.limit_in_bytes": str(2 * GB),
        "memory/memory.usage_in_bytes": str(GB),
        "memory/memory.stat": "inactive_file 7\ntotal_inactive_file 1048576\ntotal_active_file 0\n",
    }
    machine = made_up(tmp_path / "m", membership=f"4:memory:{path}\n1:cpu,cpuacct:/x\n0::/", files=files)
    (limit,) = machine.cgroup_memory()
    assert (limit.total_bytes, limit.free_bytes) == (2 * GB, GB + (1 << 20))


def test_no_limit_is_none(tmp_path: Path) -> None:
    first = {"memory/memory.limit_in_bytes": str(NOTHING), "memory/memory.usage_in_bytes": "1"}
    assert made_up(tmp_path / "1", membership="4:memory:/", files=first).cgroup_memory() == []
    second = {"memory.max": "max", "memory.current": "1"}
    assert made_up(tmp_path / "2", files=second).cgroup_memory() == []
    assert made_up(tmp_path / "3", membership="").cgroup_memory() == []
    assert made_up(tmp_path / "4", files={"memory.max": "77", "memory.current": "no number"}).cgroup_memory() == []


def test_free_memory_is_that_of_the_tightest_limit(tmp_path: Path) -> None:
    files = {"memory.max": str(2 * GB), "memory.current": str(GB)}
    assert made_up(tmp_path / "tight", total=64 * GB, available=20 * GB, files=files).free_memory() == GB
    assert made_up(tmp_path / "wide", total=64 * GB, available=GB // 2, files=files).free_memory() == GB // 2
    assert Machine(tmp_path / "none").free_memory() is None


def test_what_is_used_beyond_a_limit_leaves_nothing_free(tmp_path: Path) -> None:
    files = {"memory.max": "100", "memory.current": "150"}
    (limit,) = made_up(tmp_path / "m", files=files).cgroup_memory()
    assert limit.free_bytes == 0


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2.0),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "50000 100000"}, 0.5),
        ("3:cpu,cpuacct:/x", {"cpu/x/cpu.cfs_quota_us": "300000", "cpu/x/cpu.cfs_period_us": "100000"}, 3.0),
        ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("0::/../../x", {"cpu.max": "100000 100000"}, 1.0),
        ("0::/", {"cpu.max": "100000 0"}, None),
        ("0::/", {}, None),
    ],
)
def test_the_smallest_quota_counts(tmp_path: Path, membership: str, files: dict[str, str], quota: float | None) -> None:
    assert made_up(tmp_path / "m", membership=membership, files=files).cpu_quota() == quota


def test_a_file_system_is_known_by_its_device(tmp_path: Path) -> None:
    machine = made_up(tmp_path / "m", kind="tmpfs", options="rw,size=1k,huge=always")
    mount = machine.mount(machine.shared_memory)
    assert mount is not None
    assert (mount.kind, mount.in_memory, mount.block_bytes) == ("tmpfs", True, 2 << 20)
    disk = made_up(tmp_path / "d", kind="ext4").mount(tmp_path)
    assert disk is not None
    assert (disk.in_memory, disk.block_bytes) == (False, 4096)
    assert Machine(tmp_path / "none").mount(tmp_path) is None


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="the system has no /proc/self/mountinfo")
def test_the_kernel_s_own_files_are_understood() -> None:
    machine = Machine()
    memory = machine.memory()
    assert memory is not None
    assert memory.total_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory.free_bytes <= memory.total_bytes
    mount = machine.mount(Path("/proc"))
    assert mount is not None
    assert (mount.kind, mount.in_memory) == ("proc", False)
