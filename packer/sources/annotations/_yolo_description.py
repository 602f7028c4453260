"""YOLO description: the splits, classes and keypoints of a data set, from `data.yaml` or darknet's `obj.data`.

The class names are a list, or a mapping from numbers to names. The name of an unnamed class 7 is `class_7`, as in
ultralytics.

YAML scalars are texts, so that a class can have the name `no` or `1`. Empty values, `~` and `null` are None. Anchors,
aliases, merge keys, repeated keys and a second document are errors.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import yaml

from packer.errors import BadInput
from packer.sources._message_texts import shown
from packer.sources.annotations._yolo_labels import MOST_CLASSES

Node = str | list["Node"] | dict[str, "Node"] | None

SPLITS = ("train", "val", "valid", "validation", "minival", "test")  # in the order of the samples
MOST_BYTES = 1 << 20  # of a description
DARKNET = ".data"  # the suffix of darknet's descriptions
_MOST_KEYPOINTS = 10_000
_MOST_DIGITS = 9
_WHOLE = re.compile(r"\+?[0-9]+")
_MOST_YAML_DEPTH = 20
_NULL = ("", "~", "null", "Null", "NULL")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class YoloDescription:
    """The content of a `data.yaml` or `obj.data`. Paths are not resolved.

    Attributes:
        splits: Split -> paths of image folders, image lists or images.
        names: The class names. Empty: the description contains no class names.
        base: The folder to which the paths are relative. Empty: the description contains no such folder.
        keypoints: (number of keypoints of an object, number of values of a keypoint). None: no keypoints.
        keypoint_names: The names of the keypoints. Empty: no names, or the names differ between classes.
        names_file: The path of darknet's list of class names. Empty: no such list.
    """

    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    base: str = ""
    keypoints: tuple[int, int] | None = None
    keypoint_names: tuple[str, ...] = ()
    names_file: str = ""


class _BoundedLoader(yaml.BaseLoader):
    """A YAML loader that refuses anchors, deep nesting and lone surrogates. Small files stay small in memory."""

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
    """Parse YAML into texts, lists, dicts and None. Raise BadInput with `path` and line for other content."""
    where = shown(str(path))
    if len(data) > MOST_BYTES:
        raise BadInput(f"{where}: {len(data)} bytes, expected a description of at most {MOST_BYTES}")
    text = read_text(data, path)
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
    """Return whether a file contains the keys of a description: the images of a split, and the classes.

    Files whose `path` ends with `.data` are parsed as `obj.data`, others as YAML. Raise BadInput if parsing fails.
    """
    if path.suffix == DARKNET:
        found = _read_darknet(data, path)
        return bool(found.splits and found.names_file)
    node = read_yaml(data, path)
    if not isinstance(node, dict) or not any(isinstance(node.get(split), str | list) for split in SPLITS):
        return False
    return isinstance(node.get("names"), list | dict) or isinstance(node.get("nc"), str)


def read_description(data: bytes, path: Path) -> YoloDescription:
    """Parse darknet's `obj.data` if `path` ends with `.data`, otherwise a `data.yaml`. Raise BadInput if invalid."""
    if path.suffix == DARKNET:
        return _read_darknet(data, path)
    node = read_yaml(data, path)
    if not isinstance(node, dict):
        raise _invalid(path, "file", "keys such as train, val and names", node)
    splits = {name: _paths(node[name], name, path) for name in SPLITS if node.get(name) is not None}
    base = node.get("path") or ""
    if not isinstance(base, str):
        raise _invalid(path, "path", "the path of a folder", base)
    names = _class_names(node.get("names"), node.get("nc"), path)
    keypoints = _keypoint_shape(node.get("kpt_shape"), path)
    joints = _keypoint_names(node.get("kpt_names"), keypoints)
    return YoloDescription(splits, names, base, keypoints, joints)


def read_names(data: bytes, path: Path) -> tuple[str, ...]:
    """Return the class names in a list with one name per line. Raise BadInput for an empty line between names."""
    names = [line.strip() for line in read_text(data, path).rstrip().splitlines()]
    if "" in names:
        raise BadInput(
            f"{shown(str(path))}:{names.index('') + 1}: expected the name of a class, found an empty line; name the "
            "class, or remove the line"
        )
    return tuple(names)


def read_text(data: bytes, path: Path) -> str:
    """Return UTF-8 data, with or without a byte order mark, as text. Raise BadInput with path:line if invalid."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{shown(str(path))}:{line}: not UTF-8; save the file as UTF-8") from error


def _read_darknet(data: bytes, path: Path) -> YoloDescription:
    """Parse an `obj.data`, a file of lines `key = value`. Raise BadInput with path:line for other lines."""
    values: dict[str, str] = {}
    for number, line in enumerate(read_text(data, path).splitlines(), start=1):
        key, sign, value = (part.strip() for part in line.partition("#")[0].partition("="))
        if sign and key:
            values[key] = value
        elif sign or key:
            raise BadInput(f"{shown(str(path))}:{number}: expected key = value, found {shown(line)!r:.80}")
    return YoloDescription(
        {name: (values[name],) for name in SPLITS if values.get(name)}, names_file=values.get("names", "")
    )


def _paths(node: Node, key: str, path: Path) -> tuple[str, ...]:
    texts = [node] if isinstance(node, str) else node
    paths = [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    if not isinstance(texts, list) or len(paths) < len(texts):
        raise _invalid(path, key, "a path, or a list of paths", node)
    return tuple(paths)


def _class_names(node: Node, stated: Node, path: Path) -> tuple[str, ...]:
    """Return the class names for the values of `names` (`node`) and `nc` (`stated`). Raise BadInput if invalid."""
    count = _whole(stated)
    if (stated is not None and count is None) or (count or 0) > MOST_CLASSES:
        raise _invalid(path, "nc", "a number of classes", stated)
    if not node:
        return tuple(f"class_{number}" for number in range(count or 0))
    if not isinstance(node, list | dict):
        raise _invalid(path, "names", "a list, or a mapping from numbers", node)
    pairs = enumerate(node) if isinstance(node, list) else ((_whole(key), name) for key, name in node.items())
    names = {number: name for number, name in pairs if number is not None and isinstance(name, str)}
    if len(names) < len(node) or max(names) >= MOST_CLASSES:
        raise _invalid(path, "names", "one text for each number of a class", node)
    total = max(names) + 1
    if count not in (None, len(names), total):
        raise _invalid(path, "nc", f"{len(names)}, as in names", stated)
    return tuple(names.get(number, f"class_{number}") for number in range(total))


def _keypoint_shape(node: Node, path: Path) -> tuple[int, int] | None:
    if node is None:
        return None
    numbers = [_whole(item) or 0 for item in node] if isinstance(node, list) else []
    if len(numbers) == 2 and numbers[1] in (2, 3) and 0 < numbers[0] <= _MOST_KEYPOINTS:
        return numbers[0], numbers[1]
    raise _invalid(path, "kpt_shape", "[keypoints, 2] or [keypoints, 3]", node)


def _keypoint_names(node: Node, keypoints: tuple[int, int] | None) -> tuple[str, ...]:
    """Return the keypoint names, or () if names differ between classes or do not match the number of keypoints."""
    lists = list(node.values()) if isinstance(node, dict) else [node]
    first = lists[0] if lists else None
    names = tuple(name for name in first if isinstance(name, str)) if isinstance(first, list) else ()
    is_one = keypoints is not None and len(names) == keypoints[0] and all(each == [*names] for each in lists)
    return names if is_one else ()


def _whole(node: Node) -> int | None:
    is_whole = isinstance(node, str) and len(node) <= _MOST_DIGITS and _WHOLE.fullmatch(node)
    return int(node) if is_whole and isinstance(node, str) else None


def _invalid(path: Path, key: str, expected: str, node: Node) -> BadInput:
    found = "nothing" if node is None else shown(repr(node))
    return BadInput(f"{shown(str(path))}: {key}: expected {expected}, found {found:.80}; correct the file")
