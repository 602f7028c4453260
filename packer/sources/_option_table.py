"""Option table: declaration of each option of a source that users can set.

An entry of `SourceOptions` contains the type of an option in Python, and a help text per group of sources. The options
of `packer convert`, the keyword arguments of `packer.convert` and the pages in docs/reference are generated from
these entries. To add an option, add a keyword-only parameter to the constructor of the source and an entry here.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_args, get_origin, get_type_hints

UNCHECKED = "unchecked"  # value of `folders` that only packer sets: `auto` without an error
# parameters that only packer sets, for --sidecar, --split and --labels-orientation
INTERNAL = ("ignore_suffixes", "own_splits", "labels_orientation")


class Use(NamedTuple):
    """The help text of an option for some sources. An empty `sources` means all sources."""

    sources: tuple[str, ...]
    help: str


class Typed(NamedTuple):
    """The syntax of an option on the command line, if name and type of the option do not imply the syntax.

    Attributes:
        metavar: Placeholder of the value in help texts.
        flag: Option as users type it. Empty for the name with hyphens.
        is_repeated: True if users repeat the option to set several values.
        parameter: Parameter of the constructor that the option sets. Empty for the parameter of equal name.
    """

    metavar: str = ""
    flag: str = ""
    is_repeated: bool = False
    parameter: str = ""


_LMDBS = ("basicsr-lmdb", "caffe-lmdb", "efficient-lmdb", "image2lmdb", "tensorpack-lmdb")
_ARRAYS = ("hdf5", "n5", "npy", "npz")
_VOC = ("vmrd", "voc")
_LABEL_FILES = ("grasp-anything", "graspnet-rect", "ivalab", "jacquard", "ocid-grasp", "regrad", *_VOC, "yolo")


class SourceOptions(TypedDict, total=False):
    """The options of all sources. None, False and an empty sequence select the default of the source."""

    classes_from: Annotated[
        str | PathLike[str] | None,
        Typed("PACK", parameter="known_classes"),
        Use(
            ("folder", "table", *_VOC),
            "number the classes as in another pack; a class that PACK does not have is an error.",
        ),
    ]
    depth_from: Annotated[
        Literal["tiff", "pcd", "none"] | None,
        Use(("cornell",), "read depth from d.tiff files, compute it from the point clouds, or pack none."),
    ]
    missing: Annotated[
        Literal["keep", "skip", "error"] | None,
        Use(_LABEL_FILES, "keep or skip a sample without its label file, or stop.  [default: keep]"),
        Use(("coco", "table"), "skip a sample without its image or label, or stop.  [default: error]"),
        Use(("pairs", "webdataset"), "skip a sample without one of its files, or stop.  [default: error]"),
        Use((), "If its sidecar is missing, skip the sample, or stop.  [default: error]"),
    ]
    duplicates: Annotated[
        Literal["error", "first", "skip"] | None,
        Use(("coco", "cornell", "jacquard"), "stop at a sample that exists twice, pack the first one, or none."),
        Use(("yolo",), "the same for an image that two splits list."),
    ]
    bad_labels: Annotated[
        Literal["error", "skip"] | None,
        Use(
            ("coco", "cornell", "grasp-anything", "ivalab", "jacquard", "ocid-grasp", "regrad", *_VOC),
            "stop at a malformed label line, label file or annotation, or skip it.  [default: error]",
        ),
    ]
    folders: Annotated[
        Literal["auto", "class", "split/class", "split", "none"] | None,
        Use(
            ("folder",),
            "meaning of the folders in SOURCE: classes; splits (train, val) that contain classes, packed as one pack "
            "with the field split; splits without labels; or none.  [default: classes, unless their names are those "
            "of splits or masks, or they contain only folders]",
        ),
    ]
    named_splits: Annotated[
        bool,
        Use(
            (*_LMDBS, *_ARRAYS, "recordio", "tfrecord", "webdataset"),
            "files or arrays with the names of splits (train, val) become the field split.  [default: an error]",
        ),
    ]
    decode_with: Annotated[
        Literal["none", "pillow"] | None,
        Use(
            ("folder",),
            "decode images that packer does not read (HEIC, AVIF, GIF, JPEG 2000, TGA, ICO, PSD) with Pillow, and "
            "store them as PNG.  [default: an error]",
        ),
    ]
    companions: Annotated[
        Literal["error", "samples"] | None,
        Use(
            ("folder",),
            "images that seem to belong to others, such as a_mask.png to a.jpg: stop, or pack them as samples.  "
            "[default: error]",
        ),
    ]
    layout: Annotated[
        str | None,
        Typed("NAME"),
        Use(
            ("pairs",),
            "the published layout of images and masks: duts, hku-is, minet, voc, ade20k, ade20k-full-2017, "
            "ade20k-full-2020, cityscapes, u2net, camvid or images-masks.  [default: detected from the file names]",
        ),
    ]
    angle_convention: Annotated[
        Literal["cv44", "cv45"] | None,
        Use(("regrad",), "version of OpenCV that defines the angles of the grasps.  [default: no field grasps]"),
    ]
    roles: Annotated[
        Mapping[str, str] | Sequence[str],
        Typed("NAME=PATTERN:KIND", flag="--role", is_repeated=True),
        Use(
            ("pairs",),
            "the files of the images and of their masks: image=images/{stem}.jpg:image, "
            "mask=masks/gt_{stem}.png:mask. Files with the same {stem} form one sample. Repeatable.",
        ),
    ]
    features: Annotated[
        Mapping[str, str] | Sequence[str],
        Typed("NAME=FEATURE[:KIND]", flag="--feature", is_repeated=True),
        Use(
            ("basicsr-lmdb", *_ARRAYS, "tensorpack-lmdb", "tfrecord", "webdataset"),
            "a field, and the feature, suffix, component or array that it is read from: image=image/encoded. "
            "Repeatable; only these fields are packed.  [default: inferred, and shown]",
        ),
    ]
    pixel_order: Annotated[
        Literal["bgr", "rgb"] | None,
        Use(("tensorpack-lmdb",), "order of the channels in arrays that are images.  [default: bgr]"),
    ]
    image_column: Annotated[
        str | None,
        Typed("COLUMN"),
        Use(
            ("table",),
            "the column of the image paths, or a pattern of columns, such as train/{id}.jpg.  [default: file_name, "
            "else the column that contains names of images]",
        ),
    ]
    label_column: Annotated[
        str | None,
        Typed("COLUMN"),
        Use(("table",), "the column of the labels.  [default: label or class]"),
    ]
    key_column: Annotated[
        str | None,
        Typed("COLUMN"),
        Use(("table",), "the column of the sample keys.  [default: the image paths]"),
    ]
    group_by: Annotated[
        str | None,
        Typed("COLUMN"),
        Use(
            ("table",),
            "rows with the same value in this column form one sample, such as an image and its boxes.  [default: one "
            "sample per row]",
        ),
    ]
    axes: Annotated[
        Literal["auto", "hwc", "chw"] | None,
        Use(
            _ARRAYS,
            "position of the channels in images of three dimensions.  [default: inferred from their lengths; refused "
            "if both fit]",
        ),
    ]
    annotations: Annotated[
        str | PathLike[str] | Sequence[str | PathLike[str]],
        Typed("FILE", is_repeated=True),
        Use(
            ("coco",),
            "an annotation file, in SOURCE or elsewhere. Repeatable: several files are the splits.  [default: all "
            "that SOURCE contains]",
        ),
    ]
    task: Annotated[
        str | None,
        Typed("TASK,..."),
        Use(
            ("coco",),
            "the annotations to read: instances, keypoints, panoptic, stuff, captions, labels, image_info; several "
            "are joined by image id.  [default: the first of these that SOURCE contains]",
        ),
        Use(
            ("yolo",),
            "the meaning of the rows: detect, segment, obb or pose.  [default: inferred from their lengths and "
            "data.yaml; refused if nine numbers can be an oriented box or a polygon]",
        ),
        Use(("voc",), "detect (all images) or segment (images with a mask).  [default: inferred from the files]"),
    ]
    first_pixel: Annotated[
        Literal[0, 1] | None,
        Use(
            _VOC,
            "number of the first pixel in the files. 1: box edges are xmin and ymin minus 1, xmax and ymax unchanged; "
            "0: all four unchanged. Each manifest records it.  [default: 1]",
        ),
    ]
    allow_empty: Annotated[bool, Use(("folder",), "accept classes without images.")]
    follow_links: Annotated[
        bool,
        Use(
            (),
            "Also pack files outside SOURCE that links name.",
        ),
    ]


@dataclass(frozen=True)
class Option:
    """One entry of `SourceOptions`.

    Attributes:
        name: Keyword argument in Python.
        type: Type of the value in Python.
        uses: Groups of sources that have the option, each with a help text.
        typed: Syntax on the command line.
    """

    name: str
    type: Any
    uses: tuple[Use, ...]
    typed: Typed

    @property
    def flag(self) -> str:
        """Option as users type it, such as `--label-column`."""
        return self.typed.flag or f"--{self.name.replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """Parameter of the constructors that the option sets."""
        return self.typed.parameter or self.name

    @property
    def choices(self) -> tuple[str | int, ...]:
        """Valid values of the option. Empty if any text is valid."""
        return next((get_args(each) for each in get_args(self.type) if get_origin(each) is Literal), ())

    @property
    def is_list(self) -> bool:
        """True if the option can have several values."""
        return any(get_origin(each) is Sequence for each in get_args(self.type))

    @property
    def is_path(self) -> bool:
        """True if the values are paths of files or folders."""
        return any(get_origin(each) is PathLike for each in get_args(self.type))

    @property
    def help(self) -> str:
        """Help text: for each group of sources, the names of the sources and the meaning."""
        return "  ".join(f"{', '.join(use.sources)}: {use.help}" if use.sources else use.help for use in self.uses)

    def help_for(self, source: str) -> str:
        """Return the help text for a source, "" without this option. source: "" for the text about all sources."""
        return next((use.help for use in self.uses if source in use.sources or not (source or use.sources)), "")

    def plain(self, value: Any) -> Any:
        """Convert a value to the type that constructors and manifests use: None, str, int, bool, tuple of str."""
        if isinstance(value, Mapping):
            return tuple(f"{name}={each}" for name, each in value.items())
        if self.is_list:
            values = [value] if isinstance(value, str | PathLike) else value
            return tuple(map(os.path.expanduser, values)) if self.is_path else tuple(values)
        return os.path.expanduser(value) if self.is_path and value is not None else value

    def words(self, value: Any) -> list[str]:
        """Return the words of a command line that set the option to `value`. Empty for the default."""
        plain = self.plain(value)
        if isinstance(plain, bool):
            return [self.flag] * plain
        values = plain if isinstance(plain, tuple) else () if plain is None else (plain,)
        return [word for each in values for word in (self.flag, str(each))]


def _declared(name: str, annotation: Any) -> Option:
    declared, *notes = get_args(annotation)
    uses = tuple(note for note in notes if isinstance(note, Use))
    return Option(name, declared, uses, next((note for note in notes if isinstance(note, Typed)), Typed()))


OPTIONS: Mapping[str, Option] = {
    name: _declared(name, annotation) for name, annotation in get_type_hints(SourceOptions, include_extras=True).items()
}


def flag(parameter: str) -> str:
    """Return the command-line option that sets the parameter of a constructor: `--classes-from` for known_classes."""
    known = next((option.flag for option in OPTIONS.values() if option.parameter == parameter), None)
    return known or f"--{parameter.replace('_', '-')}"
