"""Options: all settings that decide the bytes of a pack, except the source; and presets.

The manifest stores the options, and a resumed conversion compares them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from packer import codecs, formats
from packer.errors import InvalidRequest
from packer.formats.base import Order
from packer.geometry import Resize
from packer.schema import MOST_PIXELS, USUAL_PIXELS, Field, Schema

# Small parts lose little work when a process is killed, and hashing a part overlaps writing the next one. Large parts
# keep the number of open files small.
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
    """All settings that decide the bytes of a pack, except the source. All values are JSON.

    Attributes:
        to: the format.
        fields: names to pack; None for all.
        codecs: (field, codec) pairs as typed.
        resize: "N" or "WxH", see geometry.Resize.
        exif: "ignore" keeps pixels as stored, "rotate" applies the orientation.
        validate: "full" decodes every image strictly once, "header" reads its header and end only.
        on_error: "raise" packs nothing if a sample is bad, "skip" skips bad samples and lists them.
        part_bytes: source bytes per part; 0 for one part; None for a sixteenth of the source, but 32 to 256 MiB.
        extras_bytes: extras are packed if all together have at most so many bytes.
        max_pixels: the largest image; None for schema.USUAL_PIXELS.
        sidecar_frame: the pixels that sidecars of an image with an EXIF rotation describe: "stored" in its file, or
            "upright" as viewers show it; None refuses such samples.
        slots: (slot, field) pairs, see formats.base.Slot.
        order: "stored" as in the source, or "shuffled"; None for that of the format.
        order_seed: the seed of the shuffled order.
        source: the options of the source, see SourceSpec.to_json.
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
        if self.order_seed and self.effective_order == "stored":
            raise InvalidRequest("--order-seed is for --order shuffled")
        if self.sidecar_frame == "upright" and self.exif != "rotate":
            raise InvalidRequest(
                "--sidecar-frame upright needs --exif rotate: upright masks do not fit images as stored"
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
    def effective_order(self) -> Order:
        """The order of the user, else that of the format."""
        order: Order = self.order or formats.load(self.to).Writer.order
        return order

    @property
    def pixel_limit(self) -> int:
        """The largest number of pixels of an image of the source."""
        return USUAL_PIXELS if self.max_pixels is None else self.max_pixels

    def part_limit(self, source_bytes: int) -> int:
        """Return the source bytes per part for a source of that size; 0 for one part."""
        if self.part_bytes is not None:
            return self.part_bytes
        return min(MOST_PART_BYTES, max(LEAST_PART_BYTES, source_bytes // PARTS))

    def to_json(self) -> dict[str, Any]:
        """Return all options as JSON; later ones only if they are set, so that packs without them keep their bytes."""
        out = {**asdict(self), "codecs": dict(self.codecs), "fields": list(self.fields) if self.fields else None}
        out["slots"] = dict(self.slots)
        orders = (self.effective_order, formats.load(self.to).Writer.order)
        out["order"] = self.effective_order if "shuffled" in orders else None
        for name in ("max_pixels", "sidecar_frame", "slots", "order", "order_seed"):
            if not out[name]:
                del out[name]
        return out


# ---- presets: options with which a pack loses nothing that a kind of training needs
#
# The items of a grasp network show between half of a window and all of it, at the size of the network's output.
# Cornell's window has that size in px of the image, so the image keeps its size. Jacquard's window is the complete
# image: at the smallest zoom, half of it fills the output, so twice the size of the output is enough. All other sets
# are stored like Cornell.

_FIELDS = ("rgb", "depth", "grasps", "grasp_rows", "grasp_labels", "label_keys", "object_id", "category", "split")
_JACQUARD_COLUMNS = 5  # the rows of other sets also have a score
_LEAST_ZOOM = 0.5


_JACQUARD_PX = 300  # the output of both networks
PresetName = Literal["ggcnn", "grconvnet"]


def preset_source_options(kind: str) -> dict[str, Any]:
    """Return the options of a preset for a kind of source: only labeled views of Jacquard."""
    return {"missing": "skip"} if kind == "jacquard" else {}


def preset_options(name: PresetName, schema: Schema, preferred: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a preset for a source with that schema; raises InvalidRequest if it has no grasps.

    preferred: kind -> codec of fields that the format stores in its own way.
    """
    fields = tuple(field for field in _FIELDS if field in schema and not _has_holes(schema[field]))
    if "grasp_rows" in fields and (schema["grasp_rows"].shape or ())[-1:] == (_JACQUARD_COLUMNS,):
        side = round(_JACQUARD_PX / _LEAST_ZOOM)
        return {"fields": fields, "resize": f"{side}x{side}"}
    if "grasps" not in fields:
        raise InvalidRequest(f"--preset {name} is for sets of grasps; the source has no field grasps")
    codecs = [(field, "raw") for field in ("rgb", "depth") if field in fields and schema[field].kind not in preferred]
    return {"fields": fields, "codecs": tuple(codecs)}


def _has_holes(field: Field) -> bool:
    """Return whether a field is a depth image with missing pixels, which these networks cannot use."""
    return field.kind == "depth" and field.invalid is not None
