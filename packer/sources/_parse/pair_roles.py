"""Pair roles: which files are the pictures of a set, and which belong to them, as fields of its samples."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from packer.errors import BadInput, InvalidRequest
from packer.schema import MASK_DTYPES, PIXEL_KINDS, Field
from packer.sources._parse.folder_listing import listed
from packer.sources._parse.role_pattern import RolePattern, SampleName

KINDS = (*PIXEL_KINDS, "text", "json", "bytes", "count")
_TAKEN = ("key", "split", "folder", "files")
_CODECS = {"text": "text", "json": "json"}


@dataclass(frozen=True)
class Role:
    """What files of one pattern are in the samples: a field of their bytes, or, with `is_count`, of their number.

    may_lack: whether samples without the file are whole, whose value is then empty.
    """

    field: Field
    pattern: RolePattern
    is_count: bool = False
    may_lack: bool = False

    @property
    def name(self) -> str:
        """The name of the field."""
        return self.field.name

    @classmethod
    def parse(cls, text: str, *, hidden: bool = False, may_lack: bool = False) -> "Role":
        """From what the user types, `NAME=PATH:KIND`, `NAME=PATH:depth:INVALID` or `NAME=PATH:mask:uint16`.

        Raises InvalidRequest.
        """
        name, equals, rest = text.partition("=")
        path, colon, kind = rest.rpartition(":")
        if not (equals and colon):
            raise InvalidRequest(f"role {text!r}: expected NAME=PATH:KIND, such as mask=masks/gt_{{stem}}.png:mask")
        dtype, invalid = None, None
        front, _, before = path.rpartition(":")
        if kind not in KINDS and before == "mask":
            if kind not in MASK_DTYPES:
                raise InvalidRequest(f"role {text!r}: expected {' or '.join(MASK_DTYPES)} behind mask, found {kind!r}")
            path, kind, dtype = front, before, kind
        elif kind not in KINDS and before == "depth":
            path, kind, invalid = front, before, _invalid(text, kind)
        if kind not in KINDS:
            raise InvalidRequest(f"role {text!r}: unknown kind {kind!r}; expected one of {', '.join(KINDS)}")
        if name in _TAKEN:
            raise InvalidRequest(f"role {text!r}: every sample has a {name!r} of its own; give the role another name")
        try:
            pattern = RolePattern(path)
        except InvalidRequest as error:
            raise InvalidRequest(f"role {name!r}: {error.message}") from error
        if kind == "count":
            return cls(Field(name, "number", "number", dtype="int64", shape=()), pattern, is_count=True)
        if pattern.takes_any_suffix and kind not in PIXEL_KINDS:
            raise InvalidRequest(f"role {name!r}: {path!r}: expected the suffix of its files, such as {{stem}}.txt")
        codec = _CODECS.get(kind, "encoded")
        field = Field(name, kind, codec, dtype=dtype, invalid=invalid, hidden=hidden)
        return cls(field, pattern, may_lack=may_lack)


class Files(NamedTuple):
    """The files of some roles. paths: sample -> a path for each role, "" for none. counts: role -> sample -> number."""

    paths: Mapping[SampleName, Sequence[str]]
    counts: Mapping[str, Mapping[SampleName, int]]


def check_roles(roles: Sequence[Role]) -> None:
    """Raise InvalidRequest for roles that are not those of one sample."""
    names = [role.name for role in roles]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"roles: two are named {listed(twice)}; rename one")
    if not any(role.field.kind in PIXEL_KINDS for role in roles):
        raise InvalidRequest(
            f"roles {', '.join(names)}: none is a picture; expected one of kind {', '.join(PIXEL_KINDS)}"
        )
    for role in roles[1:]:
        if role.pattern.places != roles[0].pattern.places:
            raise InvalidRequest(
                f"roles {names[0]!r} and {role.name!r}: {roles[0].pattern.text!r} and {role.pattern.text!r} have "
                "not the same placeholders, by which their files are known to be of one sample; give both the same (of "
                "{stem}, {folder}, {split})"
            )
    texts = [role.pattern.text for role in roles]
    same = sorted({text for text in texts if texts.count(text) > 1})
    if same:
        raise InvalidRequest(
            f"roles: two of them are the files {listed(same)}; tell them apart by what is in the names"
        )


def collect(names: Iterable[str], roles: Sequence[Role]) -> Files:
    """Which file has which role in which sample: of two patterns that fit, the one that says more is meant.

    Raises BadInput for a file that two patterns fit equally well, and for two files that are one role of one sample.
    """
    ordered = sorted(enumerate(roles), key=lambda pair: -pair[1].pattern.weight)
    samples: dict[SampleName, list[str]] = {}
    counts: dict[str, Counter[SampleName]] = {role.name: Counter() for role in roles if role.is_count}
    twice: dict[tuple[SampleName, str], list[str]] = {}
    unclear: list[str] = []
    for name in names:
        taken: Role | None = None
        for place, role in ordered:
            if taken is not None and role.pattern.weight < taken.pattern.weight:
                break
            sample = role.pattern.match(name)
            if sample is None:
                continue
            if taken is not None:
                unclear.append(f"{name} ({taken.name}, {role.name})")
                continue
            taken = role
            if role.is_count:
                counts[role.name][sample] += 1
                continue
            paths = samples.setdefault(sample, [""] * len(roles))
            if paths[place]:
                twice.setdefault((sample, role.name), [paths[place]]).append(name)
            paths[place] = name
    if unclear:
        raise BadInput(
            f"files that two roles fit equally well: {listed(unclear)}; say more of their names, as their suffix, in "
            "one of the two patterns"
        )
    if twice:
        said = (f"{' and '.join(files)} ({name} of {one.key})" for (one, name), files in twice.items())
        raise BadInput(
            f"files that are one role of one sample: {listed(said)}; remove or rename one of each, or say the suffix "
            "that is meant, as in --role 'image=images/{stem}.jpg:image'"
        )
    return Files(samples, counts)


def _invalid(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidRequest(
            f"role {text!r}: expected behind depth the value of a missing pixel, such as 0 or -1, found {value!r}"
        ) from None
