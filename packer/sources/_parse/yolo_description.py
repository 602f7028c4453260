"""YOLO description: the splits, classes and keypoints of a set, from its `data.yaml` or darknet's `obj.data`.

Names of classes are a list, or a mapping from numbers; where numbers are left out, and where only `nc` says how many
classes there are, they are called `class_7`, as ultralytics calls them.

YAML is read as text: a class named `no` or `1` keeps its name; empty values, `~` and `null` are None. Anchors, aliases,
merge keys, repeated keys and a second document are errors.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import yaml

from packer.errors import BadInput
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources._parse.yolo_labels import MOST_CLASSES

Node = str | list["Node"] | dict[str, "Node"] | None

SPLITS = ("train", "val", "valid", "validation", "minival", "test")  # keys that name pictures, in this order
NEEDED = ("train", "val", "valid", "validation")
_MOST_KEYPOINTS = 10_000
_MOST_DIGITS = 9
_WHOLE = re.compile(r"\+?[0-9]+")
_MOST_YAML_BYTES = 1 << 20  # 20 000 classes have half of it
_MOST_YAML_DEPTH = 20
_NULL = ("", "~", "null", "Null", "NULL")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class YoloDescription:
    """splits: name -> the paths of its folders, lists or pictures, as they are written. names: of the classes.

    base: the folder that the paths begin from, as it is written; empty where none is. keypoints: how many an object
    has, and how many numbers each is. names_file: of darknet, the path of the list of the classes, as it is written,
    with how many it says there are; `names` is empty then. notes: what the file leaves to be guessed.
    """

    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    base: str = ""
    keypoints: tuple[int, int] | None = None
    keypoint_names: tuple[str, ...] = ()
    names_file: str = ""
    class_count: int | None = None
    notes: tuple[str, ...] = ()


class _BoundedLoader(yaml.BaseLoader):
    """Composes nodes; refuses what lets a small file become a large value, and characters that are not text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if event.anchor is not None:
            raise _refused("an anchor or alias; write the value out", event)
        if isinstance(event, yaml.ScalarEvent) and _SURROGATE.search(event.value):
            raise _refused("an escape that is not a character", event)
        self._depth += 1
        if self._depth > _MOST_YAML_DEPTH:
            raise _refused(f"more than {_MOST_YAML_DEPTH} levels", event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _refused(problem: str, place: yaml.Event | yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=cast(yaml.Mark, place.start_mark))


def _value(node: yaml.Node) -> Node:
    if isinstance(node, yaml.ScalarNode):
        return None if node.style is None and node.value in _NULL else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    found: dict[str, Node] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _refused("a key that is not text", key)
        if key.value == "<<":
            raise _refused("a merge key; write the keys out", key)
        if key.value in found:
            raise _refused(f"the key {key.value!r:.80} a second time; keep one", key)
        found[key.value] = _value(value)
    return found


def read_yaml(data: bytes, path: Path) -> Node:
    """Read a YAML file of text, lists and mappings; raise BadInput with path:line for anything else."""
    where = shown(str(path))
    if len(data) > _MOST_YAML_BYTES:
        raise BadInput(f"{where}: {len(data)} bytes, expected a description of at most {_MOST_YAML_BYTES}")
    text = _text(data, path)
    try:
        node = yaml.compose(text, Loader=_BoundedLoader)
        return None if node is None else _value(node)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two for an escape beyond Unicode
        line, problem = "", str(error)
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            line, problem = f":{error.problem_mark.line + 1}", f"{error.context or ''} {error.problem}"
        problem = shown(" ".join(problem.split()))
        raise BadInput(f"{where}{line}: cannot read the YAML: {problem}; fix or remove the line") from error


def describes(data: bytes, path: Path) -> bool:
    """Check whether a YAML file describes a YOLO set: it names images of a split, and classes. Raises BadInput."""
    node = read_yaml(data, path)
    return (
        isinstance(node, dict)
        and any(isinstance(node.get(split), str | list) for split in SPLITS)
        and (isinstance(node.get("names"), list | dict) or isinstance(node.get("nc"), str))
    )


def read_description(data: bytes, path: Path) -> YoloDescription:
    """What a `data.yaml` says; raises BadInput with the path, and the line where it is not read as YAML."""
    node = read_yaml(data, path)
    where = shown(str(path))
    if not isinstance(node, dict):
        raise BadInput(f"{where}: expected keys such as train, val and names, found none; give them")
    splits = {name: _paths(node[name], name, where) for name in SPLITS if node.get(name) is not None}
    base = node.get("path")
    if base is not None and not isinstance(base, str):
        raise BadInput(f"{where}: path: expected the path of a folder, found {_kind(base)}")
    names, notes = _class_names(node, where)
    keypoints = _keypoint_shape(node.get("kpt_shape"), where)
    joints, more = _keypoint_names(node.get("kpt_names"), keypoints)
    return YoloDescription(
        splits, names, base or "", keypoints, joints, notes=tuple(f"{path.name}: {line}" for line in (*notes, *more))
    )


def read_darknet(data: bytes, path: Path) -> YoloDescription:
    """What an `obj.data` says: lines `key = value`; raises BadInput with path:line."""
    values: dict[str, str] = {}
    for number, line in enumerate(_text(data, path).splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        key, sign, value = (part.strip() for part in content.partition("="))
        if not sign or not key:
            raise BadInput(f"{shown(str(path))}:{number}: expected key = value, found {shown(content)!r:.80}")
        values[key] = value
    count = values.get("classes")
    if count is not None and _whole(count) is None:
        raise BadInput(f"{shown(str(path))}: classes: expected a number, found {shown(count)!r:.80}")
    splits = {name: (values[name],) for name in SPLITS if values.get(name)}
    return YoloDescription(
        splits, names_file=values.get("names", ""), class_count=_whole(count) if count is not None else None
    )


def read_names(data: bytes, path: Path) -> tuple[str, ...]:
    """The names in a list of classes, one a line; raises BadInput for an empty one in between."""
    names = [line.strip() for line in _text(data, path).splitlines()]
    while names and not names[-1]:
        names.pop()
    if "" in names:
        raise BadInput(
            f"{shown(str(path))}:{names.index('') + 1}: no name in this line: the classes after it would have other "
            "numbers; name the class, or remove the line"
        )
    return tuple(names)


def check_count(names: tuple[str, ...], count: int | None, where: str, key: str) -> None:
    """Raise BadInput where the number of the classes is not that of their names."""
    if count is not None and names and count != len(names):
        raise BadInput(f"{where}: {key} says {counted(count, 'class')}, names has {len(names)}; mend one of them")


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{shown(str(path))}:{line}: not UTF-8; save the file as UTF-8") from error


def _paths(node: Node, key: str, where: str) -> tuple[str, ...]:
    paths = [node] if isinstance(node, str) else node
    if not isinstance(paths, list):
        raise BadInput(f"{where}: {key}: expected a path, or a list of paths, found {_kind(node)}")
    found = [path for path in paths if isinstance(path, str)]
    if len(found) < len(paths):
        strange = next(path for path in paths if not isinstance(path, str))
        raise BadInput(f"{where}: {key}: expected a list of paths, found {_kind(strange)} in it")
    return tuple(found)


def _class_names(node: dict[str, Node], where: str) -> tuple[tuple[str, ...], list[str]]:
    """The names of the classes, and what is to be said of them."""
    stated = node.get("nc")
    count = _whole(stated) if isinstance(stated, str) else None
    if stated is not None and (count is None or count > MOST_CLASSES):
        raise BadInput(f"{where}: nc: expected a number of classes, found {shown(str(stated))!r:.80}")
    names = node.get("names")
    if names is None:
        if count is None:
            return (), ["no names of classes"]
        return tuple(map(_default_name, range(count))), [f"no names of classes: {counted(count, 'class')} by number"]
    if isinstance(names, list):
        listed_names = [name for name in names if isinstance(name, str)]
        if len(listed_names) < len(names):
            place = next(place for place, name in enumerate(names) if not isinstance(name, str))
            raise BadInput(f"{where}: names: expected text for class {place}, found {_kind(names[place])}; quote it")
        check_count(tuple(listed_names), count, where, "nc")
        return tuple(listed_names), []
    if not isinstance(names, dict):
        raise BadInput(f"{where}: names: expected a list, or a mapping from numbers, found {_kind(names)}")
    return _mapped_names(names, count, where)


def _mapped_names(names: dict[str, Node], count: int | None, where: str) -> tuple[tuple[str, ...], list[str]]:
    numbered: dict[int, str] = {}
    for key, name in names.items():
        number = _whole(key)
        if number is None or number >= MOST_CLASSES:
            raise BadInput(f"{where}: names: expected the number of a class, found {shown(key)!r:.80}")
        if number in numbered:
            raise BadInput(f"{where}: names: class {number} for the second time; keep one")
        if not isinstance(name, str):
            raise BadInput(f"{where}: names: expected text for class {number}, found {_kind(name)}; quote it")
        numbered[number] = name
    total = max(numbered, default=-1) + 1
    if count is not None and count not in (len(numbered), total):
        raise BadInput(f"{where}: nc says {counted(count, 'class')}, names has {len(numbered)}; mend one of them")
    gaps = [number for number in range(total) if number not in numbered]
    notes = []
    if gaps:
        notes.append(
            f"names has none for {counted(len(gaps), 'class')} of {total} ({listed(map(str, gaps))}): named "
            f"{_default_name(gaps[0])} and so on; ultralytics refuses such a file"
        )
    return tuple(numbered.get(number, _default_name(number)) for number in range(total)), notes


def _default_name(number: int) -> str:
    return f"class_{number}"


def _keypoint_shape(node: Node, where: str) -> tuple[int, int] | None:
    if node is None:
        return None
    numbers = [_whole(item) if isinstance(item, str) else None for item in node] if isinstance(node, list) else []
    if len(numbers) == 2 and numbers[0] is not None and numbers[1] in (2, 3) and 0 < numbers[0] <= _MOST_KEYPOINTS:
        return numbers[0], numbers[1]
    raise BadInput(f"{where}: kpt_shape: expected [keypoints, 2] or [keypoints, 3], found {_kind(node)}")


def _keypoint_names(node: Node, keypoints: tuple[int, int] | None) -> tuple[tuple[str, ...], list[str]]:
    """The names of the places, where those of all classes are the same; and what is to be said of others."""
    if node is None or keypoints is None:
        return (), []
    lists = list(node.values()) if isinstance(node, dict) else [node]
    first = lists[0] if lists else None
    if isinstance(first, list) and len(first) == keypoints[0] and all(each == first for each in lists):
        names = tuple(name for name in first if isinstance(name, str))
        if len(names) == keypoints[0]:
            return names, []
    return (), ["kpt_names are not the same for all classes, or not as many as kpt_shape says: left out"]


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) and len(text) <= _MOST_DIGITS else None


def _kind(node: Node) -> str:
    if isinstance(node, dict):
        return "a mapping"
    if isinstance(node, list):
        return f"a list of {len(node)}"
    return "nothing" if node is None else f"{shown(node)!r:.80}"
