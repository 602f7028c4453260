"""Pair layouts: where the sets that people train on keep their pictures and masks, and which layout a tree is of.

A layout of one name may have several variants, of which the first that fits is taken. A tree is of a variant where a
sample has a file of every role that it cannot do without, and, where the layout has splits, one is named as a split.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from typing import Literal

from packer.sources._name_words import split_rank
from packer.sources._parse.pair_roles import Role
from packer.sources._parse.role_pattern import SampleName


@dataclass(frozen=True)
class PairLayout:
    """One variant of a published layout. name: what --like says.

    needs: names of roles; of each tuple a sample has one at least. is_recognised: whether trees are told by it. splits:
    `known`, where only folders are splits that are named as such, or `any`. objects: how the files of role
    `objects_file` are read. remarks: what is to be known of the values of a field or a split, by its name, or, behind
    `no `, of a role that is not there.
    """

    name: str
    roles: tuple[Role, ...]
    needs: tuple[tuple[str, ...], ...] = (("image",), ("mask",))
    is_recognised: bool = True
    splits: Literal["known", "any"] = "known"
    objects: Literal["rows", "json"] | None = None
    remarks: Mapping[str, str] = member(default_factory=dict)

    def has_whole(self, names: Iterable[str], *, any_split: bool) -> bool:
        """Whether these are all files of a sample that the layout cannot do without. any_split: whatever its split."""
        any_split = any_split or self.splits == "any"
        bits = {name: 1 << bit for bit, group in enumerate(self.needs) for name in group}
        wanted = sorted((role for role in self.roles if role.name in bits), key=lambda role: -role.pattern.weight)
        whole = (1 << len(self.needs)) - 1
        found: dict[SampleName, int] = {}
        for name in names:
            for role in wanted:
                sample = role.pattern.match(name)
                if sample is None:
                    continue
                found[sample] = found.get(sample, 0) | bits[role.name]
                if found[sample] == whole and (any_split or not sample.split or split_rank(sample.split) is not None):
                    return True
                break
        return False

    def may_fit(self, names: Sequence[str], folders: Collection[str]) -> bool:
        """Whether there may be files of every role that is needed, which is quickly said."""
        roles = {role.name: role.pattern for role in self.roles}
        return all(
            any(roles[name].fits_folder(folders) and roles[name].fits_one(names) for name in group)
            for group in reversed(self.needs)  # masks have the more peculiar names
        )


def layouts_of(names: Sequence[str], like: str | None = None) -> Iterator[PairLayout]:
    """The layouts that these files are of, the first variant of each name that fits; of one name, if it is given."""
    folders = {name[: name.rfind("/") + 1] for name in names}
    done: set[str] = set()
    for layout in LAYOUTS:
        is_asked = layout.is_recognised if like is None else layout.name == like
        if not is_asked or layout.name in done or not layout.may_fit(names, folders):
            continue
        if layout.has_whole(names, any_split=like is not None):
            done.add(layout.name)
            yield layout


def _roles(*texts: str) -> tuple[Role, ...]:
    """Files that are kept as they are have names that say so; samples may do without polygons."""
    names = [text.partition("=")[0] for text in texts]
    return tuple(
        Role.parse(text, hidden=name.endswith("_file"), may_lack=name == "polygons_file")
        for name, text in zip(names, texts, strict=True)
    )


def _pair(name: str, image: str, mask: str, *, is_recognised: bool = True, remark: str = "") -> PairLayout:
    roles = _roles(f"image={image}:image", f"mask={mask}:mask")
    return PairLayout(name, roles, is_recognised=is_recognised, remarks={"mask": remark} if remark else {})


def _cityscapes(images: str, labels: str, ending: str) -> PairLayout:
    label = f"{labels}/{{split}}/{{folder}}/{{stem}}_{ending}_"
    roles = _roles(
        f"image={images}/{{split}}/{{folder}}/{{stem}}_leftImg8bit:image",
        f"mask={label}labelIds.png:mask",
        f"train_ids={label}labelTrainIds.png:mask",
        f"instances={label}instanceIds.png:mask:uint16",
        f"polygons_file={label}polygons.json:bytes",
    )
    remarks = {
        "mask": "labelIds, 0 to 33; networks are trained on labelTrainIds, 0 to 18 and 255, as in train_ids",
        "no train_ids": "labelTrainIds are not published: csCreateTrainIdLabelImgs of cityscapesscripts makes them",
        "instances": "class * 1000 + number of the object, or the class alone where objects are not told apart",
        "split test": "Cityscapes publishes no labels of it, but maps of ignored classes alone: do not score on them",
    }
    needs = (("image",), ("mask", "train_ids", "instances"))
    return PairLayout("cityscapes", roles, needs, splits="any", remarks=remarks)


def _ade20k_full(year: str, folder: str, ending: str, objects: Literal["rows", "json"]) -> PairLayout:
    path = f"{folder}{{split}}/{{folder}}/{{stem}}"
    roles = _roles(
        f"image={path}.jpg:image",
        f"seg_file={path}_seg.png:bytes",
        f"objects_file={path}{ending}:bytes",
        f"parts={path}_parts_{{number}}.png:count",
    )
    remarks = {
        "mask": "R // 10 * 256 + G of _seg.png, 0 where there is no object",
        "instances": "B of _seg.png, which counts the objects of a picture",
        "parts": "how many levels of parts a sample has; their masks are left with the other files",
    }
    needs = (("image",), ("seg_file",), ("objects_file",))
    return PairLayout(f"ade20k-full-{year}", roles, needs, objects=objects, remarks=remarks)


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
        remarks={"mask": "0 is background, 1 to 20 are the classes, 255 is void"},
    ),
    _pair(
        "ade20k",
        "{folder}/images/{split}/{stem}",
        "{folder}/annotations/{split}/{stem}.png",
        remark="values as in the files: of SceneParsing 0 is other and 1 to 150 are the classes; where a loss wants 0 "
        "to 149 with 255 ignored, subtract 1 once",
    ),
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
    _pair("u2net", "{folder}/{stem}.jpg", "{folder}/{stem}.png", is_recognised=False),
    _pair("camvid", "{split}/{stem}", "{split}annot/{stem}"),
)
NAMES = tuple(dict.fromkeys(layout.name for layout in LAYOUTS))
