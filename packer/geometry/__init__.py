"""Geometry: resizes, crops, flips and rotations as one matrix per sample, for images, points and boxes alike."""

from packer.geometry.base import Geometry
from packer.geometry.box_rule import BoxRule
from packer.geometry.random import draw, shuffled
from packer.geometry.transforms.compose import Compose
from packer.geometry.transforms.crop import CenterCrop, RandomCrop
from packer.geometry.transforms.flip import RandomHorizontalFlip
from packer.geometry.transforms.resize import Resize
from packer.geometry.transforms.resized_crop import RandomResizedCrop
from packer.geometry.transforms.rotate import RandomRotation
from packer.geometry.transforms.zoom import RandomZoom
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
