"""Samplers: what has to be known of a sampler to draw the same order once more.

A sampler whose order follows from `set_epoch`, or never changes, needs nothing. One with a generator is known by that
generator's state before the pass; one of another kind by its own `state_dict` before the pass, where it has one.
"""

from typing import Any

import torch

from packer.errors import Refused


def state_of(sampler: Any) -> dict[str, Any] | None:
    """What `restore` needs; plain values, where the sampler's own are."""
    generator = getattr(sampler, "generator", None)
    if isinstance(generator, torch.Generator):
        return {"generator": generator.get_state().numpy().tobytes().hex()}
    if not hasattr(sampler, "set_epoch") and hasattr(sampler, "state_dict"):
        return {"state_dict": sampler.state_dict()}
    return None


def restore(sampler: Any, state: Any, *, begun: bool) -> None:
    """Put a sampler where it was; begun: whether a pass is to be drawn again. Raises Refused where that cannot be."""
    mine = state_of(sampler)
    if begun and mine is None and hasattr(sampler, "generator"):
        raise Refused(
            f"state_dict: {type(sampler).__name__} without a generator draws another order each time; "
            "pass generator=torch.Generator() to it, and save again"
        )
    kind = next(iter(mine)) if mine else None
    if not isinstance(state, dict | None) or (set(state or ()) != set(mine or ())):
        raise Refused(f"state_dict: the sampler's state is {type(state).__name__}, expected one with {kind!r}")
    if not state:
        return
    if kind == "state_dict":
        sampler.load_state_dict(state[kind])
        return
    try:
        sampler.generator.set_state(torch.frombuffer(bytearray.fromhex(state[kind]), dtype=torch.uint8))
    except (TypeError, ValueError, RuntimeError) as error:
        raise Refused(f"state_dict: the sampler's generator does not take its state: {error}") from error
