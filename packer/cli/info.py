"""packer info: what is in a pack."""

from pathlib import Path
from typing import Any

import click

from packer.cli.base import examples, print_json, size_text
from packer.files.terminal import echo, hand_over


@click.command(
    short_help="Show what is in a pack.",
    epilog=examples("packer info photos.pack", "packer info photos.pack --keys | head"),
)
@click.argument("pack", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--keys", is_flag=True, help="Print the key of every sample, one per line, and nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for machines.")
def command(pack: Path, *, keys: bool, as_json: bool) -> None:
    """Show what is in PACK: format, fields, counts, options, skipped samples."""
    from packer.pack import manifest as manifests  # noqa: PLC0415  keeps `packer --help` light

    if keys:
        from packer.pack.opening import Pack  # noqa: PLC0415

        opened = Pack(pack)
        hand_over(map(opened.index.key, range(len(opened))))
        return
    manifest = manifests.read(pack)
    data = _describe(manifest)
    if as_json:
        print_json(data)
    else:
        _print(pack, data)


def _describe(manifest: Any) -> dict[str, Any]:
    sizes = [part.bytes for part in manifest.parts]
    return {
        "format": manifest.format,
        "samples": manifest.samples,
        "parts": len(manifest.parts),
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
    echo(f"  parts    {data['parts']}")
    echo(f"  source   {source.get('kind')}: {source.get('files')} files, {size_text(source.get('bytes', 0))}")
    if data["extras_bytes"] or "left_behind" in source:
        left = source.get("left_behind", {})
        behind = f"; {left.get('files')} files left behind" if left else ""
        echo(f"  extras   {size_text(data['extras_bytes'])} of files of no sample{behind}")
    echo(f"  pack id  {data['pack_id']}")
    echo(f"  by       {data['written_by']}")
    echo("  fields")
    for field in data["fields"]:
        shape = "x".join("?" if length is None else str(length) for length in field.get("shape") or ()) or "-"
        extra = f"  {len(field['classes'])} classes" if "classes" in field else ""
        extra += "  (bookkeeping)" if field.get("hidden") else ""
        echo(f"    {field['name']:<20} {field['kind']:<7} {field['codec']:<12} {shape}{extra}")
    chosen = {name: value for name, value in data["options"].items() if value not in (None, {}, [])}
    echo("  options  " + ", ".join(f"{name}={value}" for name, value in sorted(chosen.items())))
    for noun in ("skipped", "incomplete"):
        for key, reason in data[noun]:
            echo(f"  {noun} {key}: {reason}")
