"""Geometry: resizes, crops, flips and rotations as one matrix per sample, applied to images, points and boxes."""

from packer.geometry.box_rule import BoxRule
from packer.geometry.random_numbers import draw, shuffled
from packer.geometry.transforms import (
    CenterCrop,
    Compose,
    Geometry,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomZoom,
    Resize,
)
from packer.geometry.view import Matrix, View, identity, move_boxes, move_points, move_values, resized_crop, upright

__all__ = [
    "BoxRule",
    "CenterCrop",
    "Compose",
    "Geometry",
    "RandomHorizontalFlip",
    "Matrix",
    "RandomCrop",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomZoom",
    "Resize",
    "View",
    "draw",
    "identity",
    "move_boxes",
    "move_points",
    "move_values",
    "shuffled",
    "resized_crop",
    "upright",
]
