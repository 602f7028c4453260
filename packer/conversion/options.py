"""Options: all settings that determine the bytes of a pack, except the source; and presets.

The manifest stores the options. A resumed conversion must have equal options.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from packer import codecs, formats
from packer.errors import CorruptPack, InvalidRequest
from packer.formats.base import Order
from packer.geometry import Resize
from packer.pack.manifest import conversions
from packer.schema import MOST_PIXELS, USUAL_PIXELS, Field, Schema

if TYPE_CHECKING:
    from packer.pack.reader import Pack

# Small parts lose little work when a process is killed, and hashing a part overlaps writing the next one. Large parts
# keep the number of open files small.
LEAST_PART_BYTES = 32 << 20
MOST_PART_BYTES = 256 << 20
PARTS = 16
MOST_EXTRAS_BYTES = 256 << 20

Exif = Literal["ignore", "rotate"]
Validate = Literal["full", "header"]
OnError = Literal["error", "skip"]
Orientation = Literal["stored", "upright"]
PresetName = Literal["ggcnn", "grconvnet"]


@dataclass(frozen=True)
class ConversionOptions:
    """Settings that determine the bytes of a pack, except the source. All values can be written as JSON.

    Attributes:
        to: the name of the format.
        fields: the names of the fields to pack; None for all.
        codecs: pairs `(field, codec)`, such as ("rgb", "jpeg:95").
        resize: "N" for a shorter side of N px, or "WxH" (width x height); None keeps the size.
        exif: "ignore" keeps the stored pixels; "rotate" rotates images upright.
        validate: "full" decodes every image once; "header" checks only the header and the end of the file.
        on_error: "error" writes no pack if a sample is bad; "skip" skips bad samples and lists them.
        part_bytes: source bytes per part; 0 for one part; None for a sixteenth of the source, but 32 to 256 MiB.
        extras_bytes: the most bytes of all extras together. If they have more bytes, no extra is packed.
        max_pixels: the most pixels of one image; None for `schema.USUAL_PIXELS`.
        labels_orientation: whether labels describe the "stored" or the "upright" pixels if EXIF rotates the image. If
            None, a sidecar of a rotated image is an error.
        slots: pairs `(slot, field)`, such as ("image", "rgb"): the format stores this field under the name of the slot.
        order: "stored" keeps the order of the source; "shuffled" shuffles; None for the usual order of the format.
        order_seed: the seed of the shuffled order.
        preset: the name of the preset that set other options; `packer.grasp.GraspDataset` reads it. None: no preset.
        source: the options of the source, as `SourceSpec.to_json` returns them.
    """

    to: str = "lmdb"
    fields: tuple[str, ...] | None = None
    codecs: tuple[tuple[str, str], ...] = ()
    resize: str | None = None
    exif: Exif = "ignore"
    validate: Validate = "full"
    on_error: OnError = "error"
    part_bytes: int | None = None
    extras_bytes: int = MOST_EXTRAS_BYTES
    max_pixels: int | None = None
    labels_orientation: Orientation | None = None
    slots: tuple[tuple[str, str], ...] = ()
    order: Order | None = None
    order_seed: int = 0
    preset: PresetName | None = None
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
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
        """Order of the samples: `order`, or the usual order of the format if `order` is None."""
        order: Order = self.order or formats.load(self.to).Writer.order
        return order

    @property
    def pixel_limit(self) -> int:
        """Most pixels of one image of the source: `max_pixels`, or `USUAL_PIXELS` if `max_pixels` is None."""
        return USUAL_PIXELS if self.max_pixels is None else self.max_pixels

    def part_limit(self, source_bytes: int) -> int:
        """Return the source bytes per part for a source of `source_bytes`; 0 means one part."""
        if self.part_bytes is not None:
            return self.part_bytes
        return min(MOST_PART_BYTES, max(LEAST_PART_BYTES, source_bytes // PARTS))

    def to_json(self) -> dict[str, Any]:
        """Return the options for the manifest.

        Newer options are omitted if unset, so that a pack without them has the same manifest as before.
        """
        out = {**asdict(self), "codecs": dict(self.codecs), "fields": list(self.fields) if self.fields else None}
        out["slots"] = dict(self.slots)
        if self.on_error == "error":  # manifests contain the earlier word: another one would change every pack_id
            out["on_error"] = "raise"
        orders = (self.effective_order, formats.load(self.to).Writer.order)
        out["order"] = self.effective_order if "shuffled" in orders else None
        for name in ("max_pixels", "labels_orientation", "slots", "order", "order_seed", "preset"):
            if not out[name]:
                del out[name]
        return out


def recorded_options(pack: "Pack") -> ConversionOptions:
    """Return the options that the manifest of a pack records, except `extras_bytes`, which is 0.

    If the pack was converted several times, the last options have priority, but `validate` is that of the first
    conversion. Malformed options raise CorruptPack.
    """
    usual, history = ConversionOptions(to=pack.manifest.format).to_json(), conversions(pack.manifest.options)
    names = {each.name for each in fields(ConversionOptions)} - {"source"}
    found: dict[str, Any] = {}
    chosen: dict[str, str] = {}
    try:
        for each in history:
            found |= {name: each[name] for name in names & each.keys() if each[name] != usual.get(name)}
            chosen |= each.get("codecs", {})
        found["codecs"] = tuple((name, codec) for name, codec in chosen.items() if name in pack.schema)
        found["slots"] = tuple(found.get("slots", {}).items())
        found["fields"] = tuple(found["fields"]) if "fields" in found else None
        found |= {"to": pack.manifest.format, "extras_bytes": 0, "validate": history[0].get("validate", "full")}
        return ConversionOptions(**found)
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptPack(f"{pack.folder}: hostile or damaged options: {error!s:.200}; pack again") from error


# ---- presets: the smallest fields and sizes that contain everything the training of a network needs
#
# A training sample of a grasp network shows between half of a window and the full window, at the size of the network
# output. The window of Cornell has this size in image pixels, so images keep their size. The window of Jacquard is the
# full image: at the smallest zoom, half of the image fills the output, so twice the size of the output is enough. All
# other data sets are stored like Cornell.

_FIELDS = ("rgb", "depth", "grasps", "grasp_rows", "grasp_labels", "label_keys", "object_id", "category", "split")
_JACQUARD_COLUMNS = 5  # the rows of other sets also have a score
_LEAST_ZOOM = 0.5


_JACQUARD_PX = 300  # the output of both networks


def preset_source_options(kind: str) -> dict[str, Any]:
    """Return the source options of all presets: only the source "jacquard" has one, to skip unlabeled samples."""
    return {"missing": "skip"} if kind == "jacquard" else {}


def preset_options(name: PresetName, schema: Schema, preferred: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that the preset `name` sets, by name. If no field contains grasps, raise InvalidRequest.

    Args:
        schema: the fields of the source.
        preferred: for each kind of field, the codec that the format requires. The preset sets no codec for these kinds.
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
    """Return True for a depth image that may have missing pixels. Presets omit it, because networks need all pixels."""
    return field.kind == "depth" and field.invalid is not None
