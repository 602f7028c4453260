"""Grasp: what grasp networks (GG-CNN, GR-ConvNet) train on, exactly as their own loaders make it."""

from packer.grasp.dataset import GraspDataset
from packer.grasp.inputs import as_input
from packer.grasp.matching import angle_difference, iou, is_right
from packer.grasp.prediction import best_grasp
from packer.grasp.rectangles import corners_of_rows, rows_of_corners, scale
from packer.grasp.reference import GGCNNDataset, GRConvNetDataset
from packer.grasp.splits import Cut, Fold, Listed
from packer.grasp.turn_and_zoom import TurnAndZoom

__all__ = [
    "Cut",
    "Fold",
    "GGCNNDataset",
    "GRConvNetDataset",
    "GraspDataset",
    "Listed",
    "TurnAndZoom",
    "angle_difference",
    "as_input",
    "best_grasp",
    "corners_of_rows",
    "iou",
    "is_right",
    "rows_of_corners",
    "scale",
]
