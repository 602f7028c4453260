"""packer info: the fields, samples, classes and options of a pack."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from packer.cli._shared_options import Group, PackOrURL, examples, left_out, pack_head, print_json
from packer.errors import PackerError
from packer.files.terminal_output import echo, hand_over
from packer.schema import PIXEL_KINDS
from packer.system.byte_sizes import size_text

_SHOWN = 20  # classes
_DEEPEST = 6  # packs of packs whose options are shown


PLACE = (Group.LOOK_AT_A_PACK, 0)


@click.command(
    short_help="Show fields, samples, classes and options of a pack.",
    epilog=examples("packer info photos.pack", "packer info photos.pack --keys | head"),
)
@click.argument("pack", type=PackOrURL())
@click.option("--keys", is_flag=True, help="Print only the keys, one per line.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(pack: Path, *, keys: bool, as_json: bool) -> None:
    """Show what is in PACK, a folder or a URL: format, fields, counts, options, skipped samples."""
    from packer.pack import manifest as manifests  # keeps `packer --help` light

    with pack_head(pack) as folder:
        manifest = manifests.read(folder)
        if keys:
            from packer.pack.sample_index import Index

            index = Index.open(folder, manifest)
            hand_over(map(index.key, range(len(index))))
            return
        counts, chosen, problem = _counts(folder, manifest)
    data = {**_describe(manifest), "counts": counts}
    for member, number in zip(data["members"], chosen, strict=False):
        member["chosen"] = number
    if problem:
        echo(f"classes and splits are not counted: {problem}", err=True)
    if as_json:
        print_json(data)
    else:
        _print(pack, data)


def _counts(pack: Path, manifest: Any) -> tuple[dict[str, list[list[Any]]], list[int], str]:
    """Return counts by class, counts by member, and an error, which is "" unless the index is damaged.

    Counts by class are field -> [[class name, number of samples], ...]. Only a collection has members.
    """
    import numpy as np

    from packer.pack.mostly_holes import check_mostly_holes  # keeps `packer --help` light
    from packer.pack.sample_index import ROWS, Index

    named = [field for field in manifest.schema if field.classes and field.is_column and not field.shape]
    if not named and not manifest.members:
        return {}, [], ""
    try:
        check_mostly_holes(pack, manifest)
        index = Index.open(pack, manifest)
    except PackerError as error:
        return {}, [], str(error)
    chosen: list[int] = []
    if manifest.members:
        ends = np.cumsum([member.samples for member in manifest.members])
        members = np.searchsorted(ends, index.arrays[ROWS].astype(np.int64), side="right")
        chosen = np.bincount(members, minlength=len(ends)).tolist()
    counts: dict[str, list[list[Any]]] = {}
    for field in named:
        found = Counter(index.column(field.name).tolist())
        counts[field.name] = [[name, found.pop(number, 0)] for number, name in enumerate(field.classes)]
        if found:  # a number without a name
            counts[field.name].append(["(no class)", found.total()])
    return counts, chosen, ""


def _describe(manifest: Any) -> dict[str, Any]:
    sizes = [part.bytes for part in manifest.parts]
    return {
        "format": manifest.format,
        "samples": manifest.samples,
        "parts": len(manifest.parts),
        "members": [asdict(member) for member in manifest.members],
        "bytes": sum(sizes) + sum(file.bytes for file in (*manifest.index, *manifest.extras)),
        "extras_bytes": sum(file.bytes for file in manifest.extras),
        "fields": manifest.schema.to_json(),
        "options": manifest.options,
        "source": manifest.source,
        "skipped": [list(item) for item in manifest.skipped],
        "incomplete": [list(item) for item in manifest.incomplete],
        "written_by": manifest.written_by,
        "pack_id": manifest.pack_id,
    }


def _print(pack: Path, data: dict[str, Any]) -> None:
    source = data["source"]
    echo(f"{pack}: {data['samples']} samples, format {data['format']}, {size_text(data['bytes'])}")
    if data["members"]:
        echo(f"  packs    {len(data['members'])}")
        for member in data["members"][:_SHOWN]:
            renamed = "".join(f"; {new} is its {old}" for new, old in member["names"].items())
            echo(f"    {member['path']:<20} {member.get('chosen', '?')} of {member['samples']} samples{renamed}")
        if len(data["members"]) > _SHOWN:
            echo(f"    and {len(data['members']) - _SHOWN} more; --json has all")
    else:
        echo(f"  parts    {data['parts']}")
        echo(f"  source   {source.get('kind')}: {source.get('files')} files, {size_text(source.get('bytes', 0))}")
    if data["extras_bytes"] or "left_behind" in source:
        left = source.get("left_behind", {})
        behind = f"; {left.get('files')} files skipped" if left else ""
        echo(f"  extras   {size_text(data['extras_bytes'])} of files without a sample{behind}")
    echo(f"  pack id  {data['pack_id']}")
    echo(f"  by       {data['written_by']}")
    echo("  fields")
    for field in data["fields"]:
        extra = f"  {len(field['classes'])} names" if "classes" in field else ""
        extra += "  (bookkeeping)" if field.get("hidden") else ""
        echo(f"    {field['name']:<20} {field['kind']:<7} {field['codec']:<12} {_shape(field)}{extra}")
    for name, entries in data["counts"].items():
        shown = ", ".join(f"{entry} {count}" for entry, count in entries[:_SHOWN])
        more = f", and {len(entries) - _SHOWN} more; --json has all" if len(entries) > _SHOWN else ""
        echo(f"  {name:<8} {shown}{more}")
    echo(f"  options  {', '.join(_options(data['options']))}")
    for noun in ("skipped", "incomplete"):
        for key, reason in data[noun]:
            echo(f"  {left_out(noun, key, reason)}")


def _shape(field: dict[str, Any]) -> str:
    """Return the shape of a field as text, such as (H, W, 3) or (N, 4, 2); "-" for a scalar or an unknown shape."""
    free = iter("HW") if field["kind"] in PIXEL_KINDS else iter("N")
    lengths = [next(free, "?") if length is None else str(length) for length in field.get("shape") or ()]
    return f"({', '.join(lengths)})" if lengths else "-"


def _options(options: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the options that were set, as `name=value`. Splits are listed by name."""
    for name, value in sorted(options.items()):
        if value in (None, {}, [], False):
            continue
        if name == "splits" and isinstance(value, dict):
            yield f"{prefix}{name}={'+'.join(map(str, value))}"
        elif isinstance(value, dict):
            yield from _options(value, f"{prefix}{name}.", depth + 1) if depth < _DEEPEST else [f"{prefix}{name}=..."]
        elif name == "appended":
            yield f"{prefix}{name}={len(value)} sources"
        elif isinstance(value, list):
            yield f"{prefix}{name}={'+'.join(map(str, value))}"
        else:
            yield f"{prefix}{name}={value}"
