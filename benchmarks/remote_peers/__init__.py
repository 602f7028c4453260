"""Loaders that read from an object store, one file each; a file imports its library inside functions only.

DOES        what it runs, in a phrase
PACKAGES    distributions whose versions stand beside the figures
SYSTEM      Debian packages with C libraries that it needs: none
VARIANTS    settings that are tried where the first one, "", finds no flipped byte
library()   imports it
prepare(job)    once: from job.images, sorted by path, to job.url, in parts of about job.part_bytes
opened(job)     opens what was prepared, at job.url, on this rank of torch.distributed; returns an object with
    epoch()     an iterator of (uint8 batch, numbers of its photos) over one shuffled epoch
    state()     what a checkpoint keeps of a loader, as JSON
    restore(state)  before the first epoch; the state is of rank 0

../peers/NAME.txt pins what goes into the peer's own virtual environment; a peer without one runs in packer's.
"""
