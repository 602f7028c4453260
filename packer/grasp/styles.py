"""Styles: what the grasp networks do differently with the same rectangles."""

from packer.errors import Refused

STYLES = ("ggcnn", "grconvnet")
_WIDEST_PX = 150.0


def widest(style: str, size: int) -> float:
    """The opening in px at which a width map is 1, for an output of that size; raises Refused.

    ggcnn: 150 px. grconvnet: half of the output.
    """
    if style not in STYLES:
        raise Refused(f"style={style!r}: expected one of {', '.join(STYLES)}")
    return _WIDEST_PX if style == "ggcnn" else size / 2
