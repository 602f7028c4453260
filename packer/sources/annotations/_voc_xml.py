"""VOC XML: a parser for the annotation file of one image, as written by Pascal VOC, labelImg, CVAT and VMRD.

Elements may have any order, because VOC2007 and VOC2012 order `<xmin>`, `<ymin>`, `<xmax>` and `<ymax>` differently.
Only direct children of an `<object>` describe the object. The box of a `<part>` is never the box of an object.

The file may be hostile. The parser limits the number of tags and refuses document types, which can declare entities.
"""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from packer.errors import BadInput
from packer.sources._message_texts import shown

FLAGS = ("difficult", "truncated", "occluded")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_WORDS = {"true": 1, "yes": 1, "false": 0, "no": 0, "": 0, "unspecified": 0, "unknown": 0}
_MOST_FLAG = 255  # flags are stored as uint8
_MOST_SIDE = 1 << 31
_MOST_INDEX = 1 << 31
_LARGEST = 1e9  # px, far beyond any image
_MOST_TAGS = 1_000_000
_SHOWN = 40  # letters of a value in a message

Corners = tuple[float, float, float, float]


class ObjectPart(NamedTuple):
    """A part of an object, such as the head of a person. `box` is xmin, ymin, xmax, ymax as in the file."""

    name: str
    box: Corners


class AnnotatedObject(NamedTuple):
    """The content of one `<object>`.

    Attributes:
        name: The class of the object.
        box: xmin, ymin, xmax, ymax as in the file.
        flags: Flag -> value, for the flags in FLAGS that the object has.
        parts: The parts of the object.
        number: VMRD's `<index>` of the object. None in other data sets.
        fathers, children: In VMRD, the numbers of the objects under this object, and of the objects on it.
    """

    name: str
    box: Corners
    flags: Mapping[str, int]
    parts: tuple[ObjectPart, ...]
    number: int | None
    fathers: tuple[int, ...]
    children: tuple[int, ...]


class Annotation(NamedTuple):
    """The content of an annotation file.

    Attributes:
        size: (height, width) of the image in px, or None if absent.
        objects: The valid objects in the order of the file.
        dropped: The number of objects that are skipped because they are not valid.
    """

    size: tuple[int, int] | None
    objects: tuple[AnnotatedObject, ...]
    dropped: int


class _TreeBuilder(ET.TreeBuilder):
    """A builder of elements that refuses a document type, because a document type can declare entities."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Raise ValueError. The parser calls this method before the first entity."""
        raise ValueError("a document type (<!DOCTYPE>), which can declare entities, is not allowed")


def read_annotation(data: bytes, path: Path, *, strict: bool) -> Annotation:
    """Return the objects in an annotation file, and the size of the image.

    Args:
        data: The bytes of the file.
        path: The path of the file, for error messages.
        strict: True: an object that is not valid raises BadInput. False: the object is skipped and counted.

    Raises:
        BadInput: The file is not XML or has no `<annotation>`, or `strict` is true and an object is not valid.
    """
    where = shown(str(path))
    try:
        if data.count(b"<") > _MOST_TAGS:
            raise ValueError(f"more than {_MOST_TAGS} tags")
        root = ET.fromstring(data, ET.XMLParser(target=_TreeBuilder()))
    except (ET.ParseError, ValueError, LookupError) as error:  # the last for an unknown encoding
        raise BadInput(f"{where}: cannot read the XML: {shown(str(error))}; correct the file") from error
    if root.tag != "annotation":
        raise BadInput(f"{where}: expected <annotation> as in Pascal VOC, found <{_cut(root.tag)}>; move the file away")
    objects, problems = [], []
    for number, element in enumerate(root.findall("object"), start=1):
        try:
            objects.append(_object(element))
        except ValueError as error:
            name = element.findtext("name", "").strip()
            problems.append(f"object {number}{f' ({_cut(name)})' if name else ''}: {error}")
    if not objects and not problems:
        problems = ["<bndbox> outside of an <object>" for each in root.iter() if each.tag.lower() == "bndbox"]
    if problems and strict:
        raise BadInput(f"{where}: {shown(problems[0])}; correct the file, or skip such objects with --bad-labels skip")
    return Annotation(_size(root), tuple(objects), len(problems))


def _only(element: ET.Element, tag: str) -> ET.Element | None:
    """Return the child element with this name, or None if absent. Raise ValueError for several such children."""
    found = element.findall(tag)
    if len(found) > 1:
        raise ValueError(f"{len(found)} <{tag}>, expected one")
    return found[0] if found else None


def _text(element: ET.Element) -> str:
    return (element.text or "").strip()


def _object(element: ET.Element) -> AnnotatedObject:
    """Return the content of an `<object>`. Raise ValueError if the object is not valid."""
    name = _stated(element, "name")
    box = _box(element)
    flags = {flag: _flag(flag, _text(found)) for flag in FLAGS if (found := _only(element, flag)) is not None}
    parts = tuple(ObjectPart(_stated(part, "name"), _box(part)) for part in element.findall("part"))
    number = _only(element, "index")
    return AnnotatedObject(
        name,
        box,
        flags,
        parts,
        None if number is None else _index(number),
        tuple(_index(number) for number in element.findall("father/num")),
        tuple(_index(number) for number in element.findall("children/num")),
    )


def _stated(element: ET.Element, tag: str) -> str:
    found = _only(element, tag)
    if found is None or not _text(found):
        raise ValueError(f"no <{tag}>" if found is None else f"<{tag}> is empty")
    return _text(found)


def _box(element: ET.Element) -> Corners:
    found = _only(element, "bndbox")
    if found is None:
        others = ", ".join(f"<{_cut(child.tag)}>" for child in element[:10])
        raise ValueError(f"no <bndbox>, found {others or 'nothing'}")
    xmin, ymin, xmax, ymax = (_number(tag, _stated(found, tag)) for tag in _CORNERS)
    if xmin > xmax or ymin > ymax:
        raise ValueError(
            f"xmin, ymin, xmax, ymax are {xmin:g}, {ymin:g}, {xmax:g}, {ymax:g}: expected xmin <= xmax and ymin <= ymax"
        )
    return xmin, ymin, xmax, ymax


def _number(tag: str, text: str) -> float:
    if not text.isascii() or "_" in text:  # float() accepts more than label files contain
        raise ValueError(f"<{tag}> is {_cut(text)!r}, expected a number")
    try:
        value = float(text)
    except ValueError as error:
        raise ValueError(f"<{tag}> is {_cut(text)!r}, expected a number") from error
    if not abs(value) <= _LARGEST:
        raise ValueError(f"<{tag}> is {_cut(text)}, expected a number of pixels")
    return value


def _flag(tag: str, text: str) -> int:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    value = _whole(text, _MOST_FLAG)
    if value is None:
        raise ValueError(f"<{tag}> is {_cut(text)!r}, expected 0 or 1")
    return value


def _index(element: ET.Element) -> int:
    value = _whole(_text(element), _MOST_INDEX)
    if value is None:
        raise ValueError(f"<{element.tag}> is {_cut(_text(element))!r}, expected the number of an object")
    return value


def _whole(text: str, most: int) -> int | None:
    """Return a text such as `12` or `12.0` as an integer from 0 to `most`, or None for other texts."""
    digits, _, rest = text.partition(".")
    if not (digits.isascii() and digits.isdecimal()) or rest.strip("0") or len(digits) > len(str(most)):
        return None
    value = int(digits)
    return value if value <= most else None


def _size(root: ET.Element) -> tuple[int, int] | None:
    """Return (height, width) of the image in px, or None if one of the two is absent, 0 or not a number."""
    size = root.find("size")
    if size is None:
        return None
    height, width = (_whole(size.findtext(tag, "").strip(), _MOST_SIDE) for tag in ("height", "width"))
    return (height, width) if height and width else None


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
