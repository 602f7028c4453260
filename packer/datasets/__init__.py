"""Datasets: torch data sets over packs, random access, picklable, the same under fork, spawn and threads."""

from packer.datasets.detection_collate import DetectionCollate
from packer.datasets.pack_dataset import (
    BasicSRLMDBDataset,
    BMPDataset,
    CaffeLMDBDataset,
    EfficientLMDBDataset,
    HDF5Dataset,
    LMDBDataset,
    N5Dataset,
    PackDataset,
    PthDataset,
    RandomStream,
    RecordIODataset,
    TFRecordDataset,
    WebDatasetDataset,
    open_pack,
)

__all__ = [
    "BMPDataset",
    "BasicSRLMDBDataset",
    "CaffeLMDBDataset",
    "DetectionCollate",
    "EfficientLMDBDataset",
    "HDF5Dataset",
    "LMDBDataset",
    "N5Dataset",
    "PackDataset",
    "PthDataset",
    "RandomStream",
    "RecordIODataset",
    "TFRecordDataset",
    "WebDatasetDataset",
    "open_pack",
]
