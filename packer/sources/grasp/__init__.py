"""Grasp sets: images with depth and grasp rectangles. One source per file."""
