"""Grasp sets: pictures with depth and grasp rectangles. One source per file."""
