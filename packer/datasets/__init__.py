"""Datasets: the classes that `packer.open` returns, one per format, and a collate function for boxes."""

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
    RecordIODataset,
    TFRecordDataset,
    WebDatasetDataset,
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
    "RecordIODataset",
    "TFRecordDataset",
    "WebDatasetDataset",
]
