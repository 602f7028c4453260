"""Geometry: everything that moves pixels is one matrix per sample, for image, depth, mask, points and boxes alike."""

from packer.geometry.base import Geometry
from packer.geometry.compose import Compose
from packer.geometry.crop import CenterCrop, RandomCrop
from packer.geometry.draws import draw, shuffled
from packer.geometry.flip import HorizontalFlip
from packer.geometry.moving import move_boxes, move_points
from packer.geometry.resize import Resize, stretched
from packer.geometry.resized_crop import RandomResizedCrop
from packer.geometry.rotate import RandomRotate
from packer.geometry.view import Matrix, View, identity, upright
from packer.geometry.zoom import RandomZoom

__all__ = [
    "CenterCrop",
    "Compose",
    "Geometry",
    "HorizontalFlip",
    "Matrix",
    "RandomCrop",
    "RandomResizedCrop",
    "RandomRotate",
    "RandomZoom",
    "Resize",
    "View",
    "draw",
    "identity",
    "move_boxes",
    "move_points",
    "shuffled",
    "stretched",
    "upright",
]
