"""Hostile packs: whatever a pack says, each request ends with an answer or an error with a reason, no traceback."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from packer.errors import PackerError
from packer.schema import PIXEL_KINDS
from tests.support import hostile_manifests, hostile_parts
from tests.support.hostile_packs import Case, lay_out
from tests.support.view_clients import View, view_of

CASES = [*hostile_manifests.cases(), *hostile_parts.cases()]
PLAIN = {200, 400, 404, 422}


def requests(view: View) -> Iterator[str]:
    yield from ("packs", "rows?keys=1", "rows?sort=key&keys=1", "export", "differences", "only")
    for name in view.packs[0].schema.names[:20]:
        yield from (f"histogram?column={name}", f"rows?sort={name}", f"rows?where=any({name} < 1)")
        yield from (f"histogram?column={name}.width", f"rows?where=any({name}.area < 1)")
    for row in range(min(len(view.packs[0]), 3)):
        yield from (f"sample?row={row}", f"overlays?rows={row}")
        for field in view.packs[0].schema.fields[:20]:
            if field.kind in PIXEL_KINDS:
                for form in ("image?width=20", "image?", "depth?", "original?", "trained?geometry=Resize(9)"):
                    yield f"{form}&row={row}&field={field.name}"


@pytest.mark.one_in(24)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_pack_gives_errors_with_reasons(case: Case, tmp_path: Path) -> None:
    (place,) = lay_out(tmp_path, [case])
    with contextlib.suppress(PackerError), view_of(place / "pack", place / "pack") as view:
        for request in requests(view):
            answer = view.client.get(f"/api/{request}")
            assert answer.status_code in PLAIN, (request, answer.text)


def test_a_key_order_that_points_outside_is_named(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if "key order beyond" in case.name)
    (place,) = lay_out(tmp_path, [case])
    with view_of(place / "pack") as view:
        answer = view.client.get("/api/rows?sort=key")
    assert answer.status_code == 422
    assert "key order" in answer.json()["error"]
