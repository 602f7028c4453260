"""Related rows: rows of several fields that belong together, checked and dropped together.

The relations of a schema (`of`, `starts`, `into`) form groups of fields whose rows describe the same things: boxes,
their classes and their crowd flags; or the polygons of a sample, one after another, and the number at which each
polygon starts. The field that the others are `of` gives the group its name.

If a rule drops boxes, three kinds of rows are dropped too: the rows of their group, the runs of rows that start in a
dropped row, and the rows of other groups that lead into a dropped row. The remaining rows are counted again.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.geometry import BoxRule
from packer.schema import PIXEL_KINDS, ROW_KINDS, Field, Schema

Values = dict[str, npt.NDArray[Any]]
Kept = dict[str, npt.NDArray[np.bool_]]  # of a group: which rows stay


def check_rows(schema: Schema, values: Mapping[str, Any]) -> None:
    """Raise BadInput where the fields of a sample do not fit together as the schema says.

    values: of all fields with relations and of those that they name; others are not looked at.
    """
    for field in schema.fields:
        for relation, name in field.relations:
            if name not in schema:
                continue
            rows, others = values[field.name], len(values[name])
            if relation == "of":
                if len(rows) != others:
                    raise BadInput(f"{field.name} has {len(rows)} rows, {name} {others}: expected one for each")
            elif relation == "into":
                _check_into(field, np.asarray(rows), others)
            else:
                _check_starts(field, np.asarray(rows), others)


def _check_into(field: Field, rows: npt.NDArray[Any], others: int) -> None:
    if len(rows) and not (rows.min() >= 0 and rows.max() < others):
        raise BadInput(
            f"{field.name} leads to rows {rows.min()} to {rows.max()} of {field.into}, which has {others}, counted "
            "from 0"
        )


def _check_starts(field: Field, rows: npt.NDArray[Any], others: int) -> None:
    if not len(rows):
        if others:
            raise BadInput(f"{field.name} is empty, {field.starts} has {others} rows: expected a first start, 0")
    elif rows[0] != 0 or rows[-1] > others or (rows[1:] < rows[:-1]).any():
        raise BadInput(
            f"{field.name} begins with {rows[0]}, ends with {rows[-1]}: expected ascending starts from 0 to at most "
            f"{others}, the rows of {field.starts}"
        )


class _Lead(NamedTuple):
    """A field whose values lead from the rows of one group to those of another."""

    name: str
    group: str
    target: str


class RowRelations:
    """What a rule of boxes does to samples of a schema; shared by threads."""

    def __init__(self, schema: Schema, whole: Schema, rule: BoxRule) -> None:
        """schema: of the chosen fields. whole: of the pack.

        Raises InvalidRequest where there are no boxes, or a chosen field loses rows by one that is not chosen.
        """
        if not any(field.kind == "boxes" for field in whole):
            raise InvalidRequest(f"boxes={rule}: there is no field of kind boxes; fields: {', '.join(whole.names)}")
        self._rule = rule
        self._boxes = [field.name for field in schema if field.kind == "boxes"]
        self._schema = schema
        self._group = {field.name: field.name if field.of is None else field.of for field in whole}
        # of several fields of boxes in a group, one decides: that which the others are of, else the first
        boxes = sorted((field for field in whole if field.kind == "boxes"), key=lambda field: field.of is not None)
        self._deciding = {self._group[field.name]: field.name for field in reversed(boxes)}
        self._into = list(self._leads(whole, "into"))
        self._starts = list(self._leads(whole, "starts"))
        if (rule.least_visible or rule.min_side) is not None:
            self._check_chosen()
        self._into = [lead for lead in self._into if lead.name in schema]
        self._starts = [lead for lead in self._starts if lead.name in schema]
        self._deciding = {group: name for group, name in self._deciding.items() if name in schema}
        self.names = tuple(field.name for field in schema if field.kind in ROW_KINDS and field.has_rows)
        if self._boxes and not any(field.kind in PIXEL_KINDS for field in schema):
            raise InvalidRequest(f"boxes={rule}: it needs the size of an image; add one to fields=")

    def _leads(self, whole: Schema, relation: str) -> Iterator[_Lead]:
        for field in whole:
            for found, name in field.relations:
                if found == relation and name in whole:
                    yield _Lead(field.name, self._group[field.name], self._group[name])

    def _check_chosen(self) -> None:
        """Raise InvalidRequest where rows would be dropped of some of the fields that belong together, not of all."""
        losing = dict(self._deciding)  # group -> the field that says which of its rows go
        more = True
        while more:
            more = False
            for lead in self._into:
                if lead.target in losing and lead.group not in losing:
                    losing[lead.group], more = lead.name, True
            for lead in self._starts:
                if lead.group in losing and lead.target not in losing:
                    losing[lead.target], more = lead.name, True
        needed_by = [(losing.get(self._group[field.name]), field) for field in self._schema]
        needed_by += [
            (losing.get(lead.target), self._schema[lead.name]) for lead in self._into if lead.name in self._schema
        ]
        for needed, field in needed_by:
            if needed is not None and needed not in self._schema:
                raise InvalidRequest(
                    f"boxes={self._rule}: field {field.name!r} loses rows as {needed!r} says, which is not among "
                    f"fields=: add {needed!r}, or leave {field.name!r} out"
                )

    def ruled(self, values: Values, size: tuple[int, int]) -> Values:
        """The fields in `names` of a sample, boxes cut and rows dropped as the rule says.

        size: (height, width) of the image that the boxes are in pixels of. Raises BadInput for rows that do not fit
        together, as of a damaged pack.
        """
        check_rows(self._schema, values)
        kept = self._kept(values, size)
        made = {
            name: value[kept[self._group[name]]] if self._group[name] in kept else value
            for name, value in values.items()
        }
        for lead in self._into:
            if lead.target in kept:
                made[lead.name] = (np.cumsum(kept[lead.target]) - 1)[made[lead.name]].astype(values[lead.name].dtype)
        for lead in self._starts:
            if lead.target in kept:  # runs before have lost their rows
                before = np.concatenate([[0], np.cumsum(kept[lead.target])])
                made[lead.name] = before[made[lead.name]].astype(values[lead.name].dtype)
        for name in self._boxes:
            made[name] = self._rule.clipped(made[name], size)
        return made

    def _kept(self, values: Values, size: tuple[int, int]) -> Kept:
        """The rows that stay, of the groups that lose some."""
        kept: Kept = {}
        for group, name in self._deciding.items():
            visible = self._rule.visible(values[name], size)
            if not visible.all():
                kept[group] = visible
        more = bool(kept)
        while more:  # each round takes rows away, or is the last
            more = False
            for lead in self._into:
                if lead.target in kept:
                    more |= _take_away(kept, lead.group, kept[lead.target][values[lead.name]])
            for lead in self._starts:
                if lead.group in kept:
                    ends = np.append(values[lead.name][1:], self._row_count(values, lead))
                    runs = (ends - values[lead.name]).astype(np.int64)
                    more |= _take_away(kept, lead.target, np.repeat(kept[lead.group], runs))
        return kept

    def _row_count(self, values: Values, lead: _Lead) -> int:
        """How many rows the group has that a field of starts leads to; where it is not chosen, as many as it must."""
        counts = (len(value) for name, value in values.items() if self._group[name] == lead.target)
        return next(counts, int(values[lead.name].max(initial=0)))


def _take_away(kept: Kept, group: str, stays: npt.NDArray[np.bool_]) -> bool:
    """Whether the group loses a row that it still had, which is taken from it."""
    before = kept.get(group)
    after = stays if before is None else before & stays
    if after.all() if before is None else (after == before).all():
        return False
    kept[group] = after
    return True
