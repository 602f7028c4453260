"""Tensor pytree: changes or lists the tensors in nested dicts, lists, tuples and named tuples, such as a batch."""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

Change = Callable[[Any], Any]
Kinds = tuple[type, ...]


def mapped(value: Any, change: Change, skip: Collection[str] = (), kinds: Kinds = (torch.Tensor,)) -> Any:
    """Return a copy of a nested structure in which `change(tensor)` replaces each tensor. Other values are unchanged.

    Args:
        value: The nested structure.
        change: A function of a tensor that returns the new tensor.
        skip: Keys of dicts and field names of named tuples, at any depth. Values with these names are unchanged.
        kinds: Types of the values to change. The default is tensors only.
    """
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, PackedSequence):
        return _packed(value, change)

    def member(name: Any, each: Any) -> Any:
        return each if name in skip else mapped(each, change, skip, kinds)

    if isinstance(value, Mapping):
        return _like(value, {name: member(name, each) for name, each in value.items()})
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is not None:
            return type(value)(*map(member, names, value))
        return type(value)(mapped(each, change, skip, kinds) for each in value)
    if isinstance(value, list):
        new = copy.copy(value)
        new[:] = [mapped(each, change, skip, kinds) for each in value]
        return new
    return value


def tensors(value: Any, skip: Collection[str] = ()) -> Iterator[torch.Tensor]:
    """Return an iterator of the tensors that `mapped(value, change, skip)` would change, in order."""
    found: list[torch.Tensor] = []

    def see(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    mapped(value, see, skip)
    return iter(found)


def _packed(value: PackedSequence, change: Change) -> PackedSequence:
    """Change the tensors of a packed sequence, except `batch_sizes`, which torch requires on the host."""
    places = (value.sorted_indices, value.unsorted_indices)
    one, other = (change(each) if each is not None else None for each in places)
    return PackedSequence(change(value.data), value.batch_sizes, one, other)


def _like(value: Mapping[Any, Any], changed: dict[Any, Any]) -> Any:
    """Return a copy of `value` with the values of `changed`, or a dict if the type of `value` is not mutable."""
    if type(value) is dict or not isinstance(value, MutableMapping):
        return changed
    new = copy.copy(value)
    for name, each in changed.items():
        new[name] = each
    return new
