"""Related rows: checks and drops rows of several fields that belong together.

A field A of a schema may have a relation to a field B:

* `of`: A has one row for each row of B.
* `starts`: the rows of B form consecutive runs, and A contains the first row of each run.
* `into`: A contains numbers of rows of B.

B and the fields that are `of` B form a group named B, such as boxes with their classes.

If a rule drops a box, it also drops the rows of other fields that belong to the box. These are the rows of its group,
the runs of rows that start there, and the rows that point to the box. Then row numbers in the remaining rows are
updated.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.geometry import BoxRule
from packer.schema import PIXEL_KINDS, ROW_KINDS, Field, Schema

Values = dict[str, npt.NDArray[Any]]
Kept = dict[str, npt.NDArray[np.bool_]]  # group -> True for each row that stays


def check_rows(schema: Schema, values: Mapping[str, Any]) -> None:
    """Raise BadInput if the fields of a sample contradict the relations of the schema.

    Args:
        schema: the fields.
        values: field -> array. It contains each field with a relation, and each field to which a relation leads.
    """
    for field, relation, name in schema.relations:
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
            f"{field.name} points to rows {rows.min()} to {rows.max()} of {field.into}, which has {others} rows from 0"
        )


def _check_starts(field: Field, rows: npt.NDArray[Any], others: int) -> None:
    if not len(rows):
        if others:
            raise BadInput(f"{field.name} is empty, {field.starts} has {others} rows: expected a first start, 0")
    elif rows[0] != 0 or rows[-1] > others or (rows[1:] < rows[:-1]).any():
        raise BadInput(
            f"{field.name} begins with {rows[0]}, ends with {rows[-1]}: expected ascending starts from 0 to at most "
            f"{others}, the number of rows of {field.starts}"
        )


class _Lead(NamedTuple):
    """A field `name` in the group `group`. Its values are row numbers of the group `target`."""

    name: str
    group: str
    target: str


class RowRelations:
    """A rule for boxes, applied to the samples of a schema. Thread-safe.

    Attributes:
        names: the chosen fields that `ruled` takes and returns.
    """

    def __init__(self, schema: Schema, whole: Schema, rule: BoxRule) -> None:
        """Prepare a rule.

        Args:
            schema: the chosen fields.
            whole: all fields of the pack.
            rule: the rule.

        Raises:
            InvalidRequest: the pack has no boxes, or a chosen field depends on a field that is not chosen.
        """
        if not any(field.kind == "boxes" for field in whole):
            raise InvalidRequest(f"boxes={rule}: there is no field of kind boxes; fields: {', '.join(whole.names)}")
        self._rule = rule
        self._boxes = [field.name for field in schema if field.kind == "boxes"]
        self._schema = schema
        self._group = {field.name: field.name if field.of is None else field.of for field in whole}
        # one field of boxes decides for its group: the field that gives the name, else the first
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
        for field, found, name in whole.relations:
            if found == relation:
                yield _Lead(field.name, self._group[field.name], self._group[name])

    def _check_chosen(self) -> None:
        """Raise InvalidRequest if rows of a chosen field would be dropped because of a field that is not chosen."""
        losing = dict(self._deciding)  # group -> the field that decides which rows are dropped
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
                    f"boxes={self._rule}: field {field.name!r} depends on {needed!r}, which is not among fields=; "
                    f"add {needed!r}, or remove {field.name!r}"
                )

    def ruled(self, values: Values, size: tuple[int, int]) -> Values:
        """Return the fields of a sample after the rule: boxes are cut at the image border, and some rows are dropped.

        Args:
            values: field -> array, for all fields in `names`.
            size: (height, width) of the image in px.

        Raises:
            BadInput: the rows contradict the relations.
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
            if lead.target in kept:  # earlier runs have lost rows
                before = np.concatenate([[0], np.cumsum(kept[lead.target])])
                made[lead.name] = before[made[lead.name]].astype(values[lead.name].dtype)
        for name in self._boxes:
            made[name] = self._rule.clipped(made[name], size)
        return made

    def _kept(self, values: Values, size: tuple[int, int]) -> Kept:
        """Return group -> bool (rows,), True for each row that stays. Groups that lose no row are absent."""
        kept: Kept = {}
        for group, name in self._deciding.items():
            visible = self._rule.visible(values[name], size)
            if not visible.all():
                kept[group] = visible
        more = bool(kept)
        while more:
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
        counts = (len(value) for name, value in values.items() if self._group[name] == lead.target)
        return next(counts, int(values[lead.name].max(initial=0)))


def _take_away(kept: Kept, group: str, stays: npt.NDArray[np.bool_]) -> bool:
    """Drop the rows of a group for which `stays` is False. Return True if this changes `kept`."""
    before = kept.get(group)
    after = stays if before is None else before & stays
    if after.all() if before is None else (after == before).all():
        return False
    kept[group] = after
    return True
