"""Coordinate words: whether a field's name says that it holds places in a picture: `bbox`, `xmin`, `left`, `polygon`.

Where nothing else tells what numbers or texts are of, whoever asks for a geometry is told the fields that are named so.
"""

from packer.sources._parse.folder_layout import words

_WORDS_TEXT = """
x y w h x0 y0 x1 y1 x2 y2 x3 y3 x4 y4 xs ys cx cy xc yc xy xyxy xywh xmin ymin xmax ymax left right top bottom width
height center centre box boxes bbox bboxes rect rects rectangle rectangles corner corners point points polygon polygons
contour contours outline keypoint keypoints joint joints landmark landmarks rle runs pixel pixels coordinate coordinates
coords crop roi rois grasp grasps ellipse angle theta
"""
_WORDS = frozenset(_WORDS_TEXT.split())


def says_coordinates(name: str) -> bool:
    """Whether a word of the name is one for places in a picture, for lengths, or for angles."""
    return not _WORDS.isdisjoint({*words(name), *name.lower().split("_")})
