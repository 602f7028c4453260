"""Format turns: which formats a costly test runs over by default, so that sweeps over all of them share the time.

A fault in a write, a kill and a full disk are tests of their own, each with processes for every format. The code that a
format has of its own is met by any of them: each takes some of the formats by default, the next takes others, and
`scripts/test --full` all of them.
"""

import pytest

from packer import formats


def in_turn(turn: int, of: int) -> pytest.MarkDecorator:
    """Parametrise `format`: every `of`-th by name, from the `turn`-th on, by default; the others are marked `full`."""
    names = formats.names()
    return pytest.mark.parametrize(
        "format",
        [
            name if number % of == turn % of else pytest.param(name, marks=pytest.mark.full)
            for number, name in enumerate(names)
        ],
    )
