"""VOC XML: the annotation file of one picture, as Pascal VOC, labelImg, CVAT and VMRD write it.

An element is told by its name, never by its place: VOC2007 writes xmin, ymin, xmax, ymax, VOC2012 xmax before ymin. Of
an object only the elements directly in it count, so that the box of a `<part>` is never taken for one of an object.

The parser reads what a stranger wrote. A document type is refused where it begins, before any entity in it is declared;
depth and number of elements are bounded.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from packer.errors import BadInput
from packer.sources._parse.folder_listing import shown

FLAGS = ("difficult", "truncated", "occluded")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_WORDS = {"true": 1, "yes": 1, "false": 0, "no": 0, "": 0, "unspecified": 0, "unknown": 0}
_MOST_FLAG = 255  # stored as uint8
_MOST_SIDE = 1 << 31
_MOST_INDEX = 1 << 31
_LARGEST = 1e9  # px, far beyond any picture
_MOST_DEPTH = 32
_MOST_ELEMENTS = 500_000
_SHOWN = 40  # letters of a value in a message

Corners = tuple[float, float, float, float]


class ObjectPart(NamedTuple):
    """A part of an object, such as the head of a person. box: xmin, ymin, xmax, ymax as written."""

    name: str
    box: Corners


class AnnotatedObject(NamedTuple):
    """What stands in one `<object>`.

    box: xmin, ymin, xmax, ymax as written. flags: those of FLAGS that it states. number, fathers, children: of VMRD,
    the `<index>` of the object, and the numbers of those that lie under and on it; None and none elsewhere.
    """

    name: str
    box: Corners
    flags: Mapping[str, int]
    parts: tuple[ObjectPart, ...]
    number: int | None
    fathers: tuple[int, ...]
    children: tuple[int, ...]


class Annotation(NamedTuple):
    """What an annotation file says.

    size: height and width of the picture; None where it says none. filename: of the picture, as whoever annotated it
    had it, "" for none. dropped: how many objects were left out because they could not be read.
    """

    size: tuple[int, int] | None
    filename: str
    objects: tuple[AnnotatedObject, ...]
    dropped: int


class _Element:
    """One XML element: its tag, the text before the first element in it, and the elements directly in it, in order."""

    __slots__ = ("children", "pieces", "tag")

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.pieces: list[str] = []
        self.children: list[_Element] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces).strip()

    def all(self, tag: str) -> Iterator["_Element"]:
        """The elements of that name directly in this one."""
        return (child for child in self.children if child.tag == tag)

    def only(self, tag: str) -> "_Element | None":
        """The one element of that name directly in this one, None for none; raises ValueError for several."""
        found = list(self.all(tag))
        if len(found) > 1:
            raise ValueError(f"{len(found)} <{tag}>, expected one")
        return found[0] if found else None


def read_annotation(data: bytes, path: Path, *, strict: bool) -> Annotation:
    """The objects of one annotation file, and what it says of its picture.

    strict: an object that cannot be read is an error; else it is left out, and counted. Raises BadInput for what is no
    XML, or XML of something else, either way.
    """
    try:
        root = _parsed(data)
    except (expat.ExpatError, ValueError, LookupError) as error:  # the last for an encoding that nobody knows
        raise BadInput(f"{shown(str(path))}: cannot read the XML: {shown(str(error))}; mend the file") from error
    if root.tag != "annotation":
        raise BadInput(
            f"{shown(str(path))}: expected <annotation> as of Pascal VOC, found <{_cut(root.tag)}>; move the file away"
        )
    objects, dropped = [], 0
    for number, element in enumerate(root.all("object"), start=1):
        try:
            objects.append(_object(element))
        except ValueError as error:
            if strict:
                raise BadInput(
                    f"{shown(str(path))}: object {number}{_named(element)}: {shown(str(error))}; mend the file or say "
                    "--labels lenient, which leaves such objects out"
                ) from error
            dropped += 1
    strays = 0 if objects or dropped else _count_boxes(root)
    if strays and strict:
        raise BadInput(
            f"{shown(str(path))}: {strays} <bndbox>, and none in an <object> directly in <annotation>, where Pascal "
            "VOC has them; mend the file or say --labels lenient, which leaves them out"
        )
    dropped += strays
    filename = next((element.text for element in root.all("filename")), "")
    return Annotation(_size(root), filename, tuple(objects), dropped)


def _count_boxes(element: _Element) -> int:
    """How many elements in this one, however deep, are called bndbox, in letters of any case."""
    return sum((child.tag.lower() == "bndbox") + _count_boxes(child) for child in element.children)


def _parsed(data: bytes) -> _Element:
    """The root element; raises expat.ExpatError, ValueError, LookupError."""
    open_elements: list[_Element] = []
    roots: list[_Element] = []
    count = 0

    def start(tag: str, _: Mapping[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MOST_ELEMENTS or len(open_elements) >= _MOST_DEPTH:
            raise ValueError(f"more than {_MOST_ELEMENTS} elements, or {_MOST_DEPTH} in each other")
        element = _Element(tag)
        (open_elements[-1].children if open_elements else roots).append(element)
        open_elements.append(element)

    def end(_: str) -> None:
        open_elements.pop()

    def text(piece: str) -> None:
        if not open_elements[-1].children:  # what stands behind an inner element is no part of a value
            open_elements[-1].pieces.append(piece)

    def refuse(*_: object) -> None:
        raise ValueError("a document type (<!DOCTYPE>), which can declare entities: packer reads none")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.Parse(data, True)
    return roots[0]


def _object(element: _Element) -> AnnotatedObject:
    """Raises ValueError, saying what is wrong."""
    name = _text(element, "name")
    box = _box(element)
    flags = {flag: _flag(flag, found.text) for flag in FLAGS if (found := element.only(flag)) is not None}
    parts = tuple(ObjectPart(_text(part, "name"), _box(part)) for part in element.all("part"))
    number = element.only("index")
    return AnnotatedObject(
        name,
        box,
        flags,
        parts,
        None if number is None else _index(number),
        tuple(_index(number) for group in element.all("father") for number in group.all("num")),
        tuple(_index(number) for group in element.all("children") for number in group.all("num")),
    )


def _text(element: _Element, tag: str) -> str:
    found = element.only(tag)
    if found is None or not found.text:
        raise ValueError(f"no <{tag}>" if found is None else f"<{tag}> is empty")
    return found.text


def _box(element: _Element) -> Corners:
    found = element.only("bndbox")
    if found is None:
        others = ", ".join(f"<{_cut(child.tag)}>" for child in element.children[:10])
        raise ValueError(f"no <bndbox>, found {others or 'nothing'}")
    xmin, ymin, xmax, ymax = (_number(tag, _text(found, tag)) for tag in _CORNERS)
    if xmin > xmax or ymin > ymax:
        raise ValueError(f"xmin, ymin, xmax, ymax are {xmin:g}, {ymin:g}, {xmax:g}, {ymax:g}: a least is above a most")
    return xmin, ymin, xmax, ymax


def _number(tag: str, text: str) -> float:
    if not text.isascii() or "_" in text:  # Python's float() takes more than label files mean
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


def _index(element: _Element) -> int:
    value = _whole(element.text, _MOST_INDEX)
    if value is None:
        raise ValueError(f"<{element.tag}> is {_cut(element.text)!r}, expected the number of an object")
    return value


def _whole(text: str, most: int) -> int | None:
    """A whole number from 0 to `most`, written as such or with zeros behind a point; None for anything else."""
    digits, _, rest = text.partition(".")
    if not (digits.isascii() and digits.isdecimal()) or rest.strip("0") or len(digits) > len(str(most)):
        return None
    value = int(digits)
    return value if value <= most else None


def _size(root: _Element) -> tuple[int, int] | None:
    """Height and width that the file states; None where it states none, as where it states 0 or no number."""
    size = next(root.all("size"), None)
    if size is None:
        return None
    found = [next((_whole(child.text, _MOST_SIDE) for child in size.all(tag)), None) for tag in ("height", "width")]
    height, width = found
    return (height, width) if height and width else None


def _named(element: _Element) -> str:
    name = next((child.text for child in element.all("name")), "")
    return f" ({shown(_cut(name))})" if name else ""


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
