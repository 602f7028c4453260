"""State: where a loader stands, counted in batches that its caller has got, as plain values and back."""

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

from packer.errors import InvalidRequest
from packer.loading.sampling import Order, Span, Stretches

_COUNTS = ("epoch", "step", "taken")


@dataclass(frozen=True)
class LoaderState:
    """epoch, step: of the batch that comes next. taken: batches of the endless stream, 0 without one.

    before: what other numbers of ranks have made of that epoch, or of the stream; step or taken counts from its end.
    """

    epoch: int = 0
    step: int = 0
    taken: int = 0
    before: Stretches = ()

    def state(self) -> dict[str, Any]:
        """Numbers and lists of numbers."""
        return {**asdict(self), "before": [list(astuple(stretch)) for stretch in self.before]}

    def on(self, order: Order, *, world_size: int, batch_size: int) -> "LoaderState":
        """The same place for the ranks of `order`, where that many have come here; raises InvalidRequest if that
        cannot be.
        """
        place = self
        if world_size != order.world_size:
            steps = self.step if order.steps_per_epoch is None else self.taken
            stretches = (*self.before, *((Span(world_size, batch_size, steps),) if steps else ()))
            if order.steps_per_epoch is None:
                place = LoaderState(self.epoch, 0, 0, stretches)
            else:
                place = LoaderState(self.epoch, self.step, 0, stretches)
        if order.steps_per_epoch is None and order.steps_after(place.before) == 0 != len(order):
            return LoaderState(place.epoch + 1)  # with drop_last, what is left may be no batch
        return place


def state_from(state: Mapping[str, Any]) -> LoaderState:
    """The place of a state; raises InvalidRequest."""
    for name in _COUNTS:
        if not _is_count(state.get(name)):
            raise InvalidRequest(f"state_dict: {name} is {state.get(name)!r}: expected a whole number")
    before = state.get("before")
    if not isinstance(before, list) or not all(map(_is_stretch, before)):
        raise InvalidRequest(f"state_dict: before is {before!r}: expected lists of ranks, batch size and steps")
    return LoaderState(state["epoch"], state["step"], state["taken"], tuple(Span(*each) for each in before))


def _is_stretch(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_count, value)) and min(value) >= 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
