"""Grasp: training items (input and maps) for GG-CNN and GR-ConvNet, equal to those of the networks' own loaders."""

from packer.grasp.dataset import GGCNNDataset, GraspDataset, GRConvNetDataset, TurnAndZoom
from packer.grasp.item_decoder import as_input
from packer.grasp.metrics import angle_difference, best_grasp, iou, is_correct_grasp
from packer.grasp.sample_splits import Fold, ListSplit, NamedSplit, SliceSplit
from packer.grasp.targets import rows_of_corners, scale
from packer.sources.grasp._label_files import corners as corners_of_rows

__all__ = [
    "Fold",
    "GGCNNDataset",
    "GRConvNetDataset",
    "GraspDataset",
    "ListSplit",
    "NamedSplit",
    "SliceSplit",
    "TurnAndZoom",
    "angle_difference",
    "as_input",
    "best_grasp",
    "corners_of_rows",
    "iou",
    "is_correct_grasp",
    "rows_of_corners",
    "scale",
]
