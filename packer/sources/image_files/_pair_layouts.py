"""Pair layouts: path patterns of images and masks in published data sets, and detection of the layout of a folder.

A layout may have several variants with the same name. The first variant that fits the folder is used. A folder fits a
layout if it contains a file for each required role. If the layout has splits, the splits of these files must have
usual names.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from packer.errors import InvalidRequest
from packer.schema import PIXEL_KINDS, Field
from packer.sources._file_pattern import Declaration, RolePattern
from packer.sources._message_texts import listed
from packer.sources._name_words import split_rank

KINDS = (*PIXEL_KINDS, "text", "json", "bytes", "count")
_RESERVED = ("key", "split", "folder", "files")


@dataclass(frozen=True)
class PairRole:
    """A path pattern and the field that it fills.

    Attributes:
        field: The field of a sample.
        pattern: The pattern of file paths.
        is_count: True: the field contains the number of matching files. False: the field contains the bytes of a file.
    """

    field: Field
    pattern: RolePattern
    is_count: bool = False

    @property
    def name(self) -> str:
        """The name of the field."""
        return self.field.name

    @classmethod
    def parse(cls, text: str) -> "PairRole":
        """Parse `NAME=PATTERN:KIND`, or raise InvalidRequest. A name that ends with `_file` is a hidden field."""
        name, path, kind, dtype, invalid = Declaration.parse("role", text, KINDS)
        if name in _RESERVED:
            raise InvalidRequest(f"role {text!r}: every sample has a field {name!r}; use another name")
        pattern = RolePattern(path)
        if kind == "count":
            return cls(Field(name, "number", "number", dtype="int64", shape=()), pattern, is_count=True)
        if pattern.takes_any_suffix and kind not in PIXEL_KINDS:
            raise InvalidRequest(f"role {text!r}: expected the suffix of the files, such as {{stem}}.txt")
        codec = kind if kind in ("text", "json") else "encoded"
        return cls(Field(name, kind, codec, dtype=dtype, invalid=invalid, hidden=name.endswith("_file")), pattern)


def check_roles(roles: Sequence[PairRole]) -> None:
    """Raise InvalidRequest if names or patterns repeat, placeholders differ, or the first role is not an image."""
    names, texts = [role.name for role in roles], [role.pattern.text for role in roles]
    twice = [text for values in (names, texts) for text in sorted(set(values)) if values.count(text) > 1]
    if twice:
        raise InvalidRequest(f"--role: two have the same name or the same files: {listed(twice)}; change one")
    if roles[0].field.kind not in PIXEL_KINDS:
        raise InvalidRequest(f"--role {names[0]}: expected an image first, of kind {', '.join(PIXEL_KINDS)}")
    for role in roles:
        if role.pattern.places != roles[0].pattern.places:
            raise InvalidRequest(
                f"--role {names[0]} and {role.name}: {texts[0]!r} and {role.pattern.text!r} have different "
                "placeholders; expected the same ones of {stem}, {folder} and {split}"
            )


@dataclass(frozen=True)
class PairLayout:
    """One variant of a published layout.

    Attributes:
        name: The name of the layout, a value of the option `--layout`.
        roles: The files of a sample.
        needs: Groups of role names. A sample must have a file for at least one role of each group.
        is_recognized: True: the layout is detected automatically. False: the user must set `--layout`.
        splits: `known`: only usual names, such as `train`, are splits. `any`: a split can have any name.
        objects: The format of the files of the role `objects_file`: `rows` of `_atr.txt`, or `json`. None: no role.
    """

    name: str
    roles: tuple[PairRole, ...]
    needs: tuple[tuple[str, ...], ...] = (("image",), ("mask",))
    is_recognized: bool = True
    splits: Literal["known", "any"] = "known"
    objects: Literal["rows", "json"] | None = None

    def fits(self, names: Sequence[str], folders: Collection[str], *, any_split: bool) -> bool:
        """Return True if each group of required roles has a file in a valid split.

        A valid split has a usual name, such as `train`. With `any_split`, all names of splits are valid.
        `names` are the relative paths of all files, `folders` the relative paths of all folders with a final slash.
        """
        any_split = any_split or self.splits == "any"
        patterns = {role.name: role.pattern for role in self.roles}

        def is_present(role: str) -> bool:
            samples = filter(None, map(patterns[role].match, names if patterns[role].fits_folder(folders) else ()))
            return any(any_split or not each.split or split_rank(each.split) is not None for each in samples)

        return all(any(map(is_present, group)) for group in reversed(self.needs))  # masks have the rarer names


def layouts_of(names: Sequence[str], name: str | None = None) -> Iterator[PairLayout]:
    """Yield the layouts that the files `names` fit, one variant of each. With `name`, try only that layout."""
    folders = {name[: name.rfind("/") + 1] for name in names}
    done: set[str] = set()
    for layout in LAYOUTS:
        is_candidate = layout.is_recognized if name is None else layout.name == name
        if is_candidate and layout.name not in done and layout.fits(names, folders, any_split=name is not None):
            done.add(layout.name)
            yield layout


def _pair(name: str, image: str, mask: str, *, is_recognized: bool = True) -> PairLayout:
    roles = _roles(f"image={image}:image", f"mask={mask}:mask")
    return PairLayout(name, roles, is_recognized=is_recognized)


def _roles(*texts: str) -> tuple[PairRole, ...]:
    return tuple(map(PairRole.parse, texts))


def _cityscapes(images: str, labels: str, ending: str) -> PairLayout:
    label = f"{labels}/{{split}}/{{folder}}/{{stem}}_{ending}_"
    roles = _roles(
        f"image={images}/{{split}}/{{folder}}/{{stem}}_leftImg8bit:image",
        f"mask={label}labelIds.png:mask",
        f"train_ids={label}labelTrainIds.png:mask",
        f"instances={label}instanceIds.png:mask:uint16",
        f"polygons_file={label}polygons.json:bytes",
    )
    needs = (("image",), ("mask", "train_ids", "instances"))
    return PairLayout("cityscapes", roles, needs, splits="any")


def _ade20k_full(year: str, folder: str, ending: str, objects: Literal["rows", "json"]) -> PairLayout:
    path = f"{folder}{{split}}/{{folder}}/{{stem}}"
    roles = _roles(
        f"image={path}.jpg:image",
        f"seg_file={path}_seg.png:bytes",
        f"objects_file={path}{ending}:bytes",
        f"parts={path}_parts_{{number}}.png:count",
    )
    needs = (("image",), ("seg_file",), ("objects_file",))
    return PairLayout(f"ade20k-full-{year}", roles, needs, objects=objects)


LAYOUTS = (
    _pair("duts", "{folder}/DUTS-{split}-Image/{stem}", "{folder}/DUTS-{split}-Mask/{stem}"),
    _pair("hku-is", "{folder}/imgs/{stem}", "{folder}/gt/{stem}"),
    _pair("minet", "{folder}/Image/{stem}", "{folder}/Mask/{stem}"),
    PairLayout(
        "voc",
        _roles(
            "image={folder}/JPEGImages/{stem}:image",
            "mask={folder}/SegmentationClass/{stem}.png:mask",
            "object_mask={folder}/SegmentationObject/{stem}.png:mask",
        ),
    ),
    _pair("ade20k", "{folder}/images/{split}/{stem}", "{folder}/annotations/{split}/{stem}.png"),
    _ade20k_full("2017", "images/", "_atr.txt", "rows"),
    _ade20k_full("2017", "", "_atr.txt", "rows"),
    _ade20k_full("2020", "images/ADE/", ".json", "json"),
    _ade20k_full("2020", "images/", ".json", "json"),
    _ade20k_full("2020", "", ".json", "json"),
    _cityscapes("leftImg8bit", "gtFine", "gtFine"),
    _cityscapes("imgsFine/leftImg8bit", "gtFine", "gtFine"),
    _cityscapes("leftImg8bit_trainvaltest/leftImg8bit", "gtFine_trainvaltest/gtFine", "gtFine"),
    _cityscapes("leftImg8bit", "gtCoarse", "gtCoarse"),
    _pair("u2net", "{folder}/im_aug/{stem}", "{folder}/gt_aug/{stem}"),
    _pair("u2net", "{folder}/{stem}.jpg", "{folder}/{stem}.png", is_recognized=False),
    _pair("camvid", "{split}/{stem}", "{split}annot/{stem}"),
    _pair("images-masks", "images/{stem}", "masks/{stem}.png"),
    _pair("images-masks", "images/{split}/{stem}", "masks/{split}/{stem}.png"),
    _pair("images-masks", "{split}/images/{stem}", "{split}/masks/{stem}.png"),
)
NAMES = tuple(dict.fromkeys(layout.name for layout in LAYOUTS))
