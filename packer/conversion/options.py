"""Options: what the user asked of a conversion, and presets of it.

They are stored in the manifest, and compared when a conversion is resumed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from packer import codecs, formats
from packer.errors import InvalidRequest
from packer.formats.base import Order
from packer.geometry import Resize
from packer.schema import MOST_PIXELS, USUAL_PIXELS, Field, Schema

# Small enough that a kill costs little work and that hashing one part overlaps writing the next, large enough that a
# set of any size has few parts to keep open.
LEAST_PART_BYTES = 32 << 20
MOST_PART_BYTES = 256 << 20
PARTS = 16
MOST_EXTRAS_BYTES = 256 << 20

Exif = Literal["ignore", "rotate"]
Validate = Literal["full", "header"]
OnError = Literal["raise", "skip"]
SidecarFrame = Literal["stored", "upright"]


@dataclass(frozen=True)
class ConversionOptions:
    """Everything that decides a pack's bytes, besides the source. All JSON.

    to: format. fields: names to pack, None for all. codecs: (field, codec) pairs as typed.
    resize: "N" or "WxH", see geometry.Resize. exif: "ignore" keeps pixels as stored, "rotate" bakes the orientation in.
    validate: "full" decodes every image strictly once, "header" looks at its header and end only.
    on_error: "raise" packs nothing when anything is bad, "skip" leaves bad samples out and lists them.
    part_bytes: source bytes per part, 0 for one part, None for a sixteenth of the source, but 32 to 256 MiB.
    extras_bytes: the files that are of no sample go along, all of them up to so many bytes together, else none.
    max_pixels: the most of one picture; None for schema.USUAL_PIXELS.
    sidecar_frame: over which pixels the files of --sidecar, and the pictures beside another in one record, lie where
        that one is not upright by its EXIF orientation: "stored", as they are in its file, "upright", as viewers show
        them; None refuses such samples.
    slots: (slot, field) pairs: which field another tool's records hold under which name, see formats.base.Slot.
    order: in which samples are packed, "stored" as the source has them, or "shuffled"; None for the format's own.
    order_seed: another draw of the shuffled order.
    source: what was asked of the source, see SourceSpec.to_json.
    """

    to: str = "lmdb"
    fields: tuple[str, ...] | None = None
    codecs: tuple[tuple[str, str], ...] = ()
    resize: str | None = None
    exif: Exif = "ignore"
    validate: Validate = "full"
    on_error: OnError = "raise"
    part_bytes: int | None = None
    extras_bytes: int = MOST_EXTRAS_BYTES
    max_pixels: int | None = None
    sidecar_frame: SidecarFrame | None = None
    slots: tuple[tuple[str, str], ...] = ()
    order: Order | None = None
    order_seed: int = 0
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.order_seed and self.settled_order == "stored":
            raise InvalidRequest("--order-seed is for --order shuffled")
        if self.sidecar_frame == "upright" and self.exif != "rotate":
            raise InvalidRequest(
                "--sidecar-frame upright needs --exif rotate: upright masks do not fit pictures as stored"
            )
        if self.resize is not None:
            Resize.parse(self.resize)
        for _, codec in self.codecs:
            codecs.check(codec)
        if self.max_pixels is not None and not 1 <= self.max_pixels <= MOST_PIXELS:
            raise InvalidRequest(
                f"max_pixels={self.max_pixels}: expected 1 to {MOST_PIXELS} ({MOST_PIXELS // 1_000_000}M)"
            )
        if self.extras_bytes < 0:
            raise InvalidRequest(f"extras_bytes={self.extras_bytes}: expected 0 (none) or a number of bytes")
        if self.part_bytes is not None and self.part_bytes < 0:
            raise InvalidRequest(f"part_bytes={self.part_bytes}: expected 0 (one part) or a number of bytes")

    @property
    def settled_order(self) -> Order:
        """As asked, else as the format has it."""
        order: Order = self.order or formats.load(self.to).Writer.order
        return order

    @property
    def pixel_limit(self) -> int:
        """The most pixels of one picture of the source."""
        return USUAL_PIXELS if self.max_pixels is None else self.max_pixels

    def part_limit(self, source_bytes: int) -> int:
        """Source bytes per part for a source of that size; 0 for one part."""
        if self.part_bytes is not None:
            return self.part_bytes
        return min(MOST_PART_BYTES, max(LEAST_PART_BYTES, source_bytes // PARTS))

    def to_json(self) -> dict[str, Any]:
        """All options, in JSON's types; later ones only where they were given: packs without them keep their bytes."""
        out = {**asdict(self), "codecs": dict(self.codecs), "fields": list(self.fields) if self.fields else None}
        out["slots"] = dict(self.slots)
        orders = (self.settled_order, formats.load(self.to).Writer.order)
        out["order"] = self.settled_order if "shuffled" in orders else None
        for name in ("max_pixels", "sidecar_frame", "slots", "order", "order_seed"):
            if not out[name]:
                del out[name]
        return out


# ---- presets: what a kind of training wants, so that a pack loses nothing that it needs
#
# A grasp network's items show between half and all of a window at the size of its output. Cornell's window has that
# size in px of the picture and is turned about the grasps: the picture stays whole and as large as it is. Jacquard's
# window is the whole picture: at the least zoom, half of it fills the output, so that twice the output keeps a pixel
# for each. Every other set is stored as Cornell is.

_FIELDS = ("rgb", "depth", "grasps", "grasp_rows", "grasp_labels", "label_keys", "object_id", "category", "split")
_JACQUARD_COLUMNS = 5  # of its rows; those of other sets have a score, too
_LEAST_ZOOM = 0.5


@dataclass(frozen=True)
class Preset:
    """jacquard_px: the network's output on Jacquard."""

    jacquard_px: int


PresetName = Literal["ggcnn", "grconvnet"]
PRESETS: dict[PresetName, Preset] = {"ggcnn": Preset(300), "grconvnet": Preset(300)}


def preset_source_options(kind: str) -> dict[str, Any]:
    """What a preset asks of a source of that kind: of Jacquard, as the networks' loaders, the labelled views alone."""
    return {"missing": "skip"} if kind == "jacquard" else {}


def preset_options(name: PresetName, schema: Schema, preferred: Mapping[str, str]) -> dict[str, Any]:
    """The options of a preset for a source with that schema; raises InvalidRequest where it has no grasps.

    preferred: kind -> codec of fields that the format stores in its own way.
    """
    fields = tuple(field for field in _FIELDS if field in schema and not _has_holes(schema[field]))
    if "grasp_rows" in fields and (schema["grasp_rows"].shape or ())[-1:] == (_JACQUARD_COLUMNS,):
        side = round(PRESETS[name].jacquard_px / _LEAST_ZOOM)
        return {"fields": fields, "resize": f"{side}x{side}"}
    if "grasps" not in fields:
        raise InvalidRequest(f"--preset {name} is for sets of grasps; the source has no field grasps")
    codecs = [(field, "raw") for field in ("rgb", "depth") if field in fields and schema[field].kind not in preferred]
    return {"fields": fields, "codecs": tuple(codecs)}


def _has_holes(field: Field) -> bool:
    """Whether it is a depth with missing pixels, which these networks do not take."""
    return field.kind == "depth" and field.invalid is not None
