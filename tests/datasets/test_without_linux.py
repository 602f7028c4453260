"""Reading a pack where the calls that only Linux has are absent, as on macOS."""

from pathlib import Path

import packer
from tests.support import warm_python
from tests.support.source_trees import photos

_PROGRAM = """
import builtins, fcntl, io, mmap, os, select
import torch

ABSENT = {
    os: ("memfd_create", "MFD_CLOEXEC", "O_TMPFILE", "O_PATH", "copy_file_range", "eventfd", "pidfd_open", "preadv",
         "posix_fadvise", "POSIX_FADV_DONTNEED", "POSIX_FADV_RANDOM", "POSIX_FADV_WILLNEED", "sched_getaffinity"),
    fcntl: ("F_SETLEASE", "F_GETLEASE", "F_ADD_SEALS", "F_OFD_SETLK"),
    mmap: ("MAP_POPULATE",),
    select: ("epoll",),
}
for module, names in ABSENT.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

def without_proc(function):
    def opened(path, *words, **options):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "absent", path)
        return function(path, *words, **options)
    return opened

os.open = without_proc(os.open)
builtins.open = io.open = without_proc(io.open)

import packer
from packer.geometry import RandomResizedCrop
from torch.utils.data import DataLoader

with packer.open("photos.pack", geometry=RandomResizedCrop(32)) as dataset:
    loaders = [
        DataLoader(dataset, 4),
        DataLoader(dataset, 4, num_workers=2),
        packer.Loader(dataset, 4, shuffle=True),
        packer.Loader(dataset, 4, shuffle=True, num_workers=2),
    ]
    for loader in loaders:
        batches = list(loader)
        assert sum(len(batch["label"]) for batch in batches) == len(dataset) == 12
        assert batches[0]["image"].shape == (4, 3, 32, 32)
"""


def test_reading_needs_no_call_that_only_linux_has(tmp_path: Path) -> None:
    packer.convert(photos(tmp_path / "photos", 12), tmp_path / "photos.pack")
    warm_python.run(_PROGRAM, strict=True, folder=tmp_path)
