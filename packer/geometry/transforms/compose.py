"""Compose: applies several geometries one after the other, in one warp."""

from collections.abc import Sequence

from packer.errors import InvalidRequest
from packer.geometry.base import Geometry
from packer.geometry.view import View, identity


class Compose(Geometry):
    """Multiplies the matrices of all geometries: the image is warped once, however many there are."""

    def __init__(self, *geometries: Geometry) -> None:
        """geometries: in the order in which they act; a list of them is taken too, as torchvision's Compose does."""
        given = tuple(geometries[0]) if len(geometries) == 1 and isinstance(geometries[0], list) else geometries
        for geometry in given:
            if not isinstance(geometry, Geometry):
                raise InvalidRequest(
                    f"Compose: expected geometries, such as Resize(256), found {type(geometry).__name__}"
                )
        self.geometries: tuple[Geometry, ...] = given
        self.draws = sum(geometry.draws for geometry in given)

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The product of the views; each geometry sees the size that those before it made."""
        view = None
        size = (height, width)
        start = 0
        for geometry in self.geometries:
            stop = start + geometry.draws
            found = geometry.view(*size, random[start:stop])
            size, start = found.size, stop
            view = found if view is None else view.then(found)
        return view or identity(height, width)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compose) and self.geometries == other.geometries

    def __hash__(self) -> int:
        return hash(self.geometries)

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.geometries))})"
