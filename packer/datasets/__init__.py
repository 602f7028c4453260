"""Datasets: torch data sets over packs, random access, picklable, the same under fork, spawn and threads."""

from packer.datasets.pack_dataset import (
    BMPDataset,
    HDF5Dataset,
    LMDBDataset,
    PackDataset,
    PthDataset,
    RandomStream,
    TFRecordDataset,
    open_pack,
)

__all__ = [
    "BMPDataset",
    "HDF5Dataset",
    "LMDBDataset",
    "PackDataset",
    "PthDataset",
    "RandomStream",
    "TFRecordDataset",
    "open_pack",
]
