"""Presets: the options of a conversion that a kind of training wants, so that a pack loses nothing that it needs.

A grasp network's items show between half and all of a window at the size of its output. Cornell's window has that size
in px of the picture and is turned about the grasps: the picture stays whole and as large as it is. Jacquard's window is
the whole picture: at the least zoom, half of it fills the output, so that twice the output keeps a pixel for each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from packer.errors import InvalidRequest
from packer.schema import Schema

_FIELDS = ("rgb", "depth", "grasps", "grasp_rows", "object_id", "category", "split")
_LEAST_ZOOM = 0.5


@dataclass(frozen=True)
class Preset:
    """jacquard_px: the network's output on Jacquard."""

    jacquard_px: int


PresetName = Literal["ggcnn", "grconvnet"]
PRESETS: dict[PresetName, Preset] = {"ggcnn": Preset(300), "grconvnet": Preset(300)}


def source_options(kind: str) -> dict[str, Any]:
    """What a preset asks of a source of that kind: of Jacquard, as the networks' loaders, the labelled views alone."""
    return {"missing": "skip"} if kind == "jacquard" else {}


def options(name: PresetName, schema: Schema, preferred: Mapping[str, str]) -> dict[str, Any]:
    """The options of a preset for a source with that schema; raises InvalidRequest where it has no grasps.

    preferred: kind -> codec of fields that the format stores in its own way.
    """
    fields = tuple(field for field in _FIELDS if field in schema)
    if "grasp_rows" in fields:
        side = round(PRESETS[name].jacquard_px / _LEAST_ZOOM)
        return {"fields": fields, "resize": f"{side}x{side}"}
    if "grasps" not in fields:
        raise InvalidRequest(f"--preset {name} is for cornell and jacquard; the source has no field grasps")
    codecs = [(field, "raw") for field in ("rgb", "depth") if field in fields and schema[field].kind not in preferred]
    return {"fields": fields, "codecs": tuple(codecs)}
