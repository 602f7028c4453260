"""packer stage: a pack in memory, copied once per machine."""

from pathlib import Path
from typing import Any

import click

from packer.cli._shared_options import Group, PathOrURL, examples, parse_counts, parse_size, print_json
from packer.files.progress_bar import ProgressBar
from packer.files.terminal_output import echo, hand_over
from packer.system.byte_sizes import size_text
from packer.system.progress_callback import ProgressCounter

PLACE = (Group.LOAD_FASTER, 0)


@click.command(
    short_help="Copy a pack into memory.", epilog=examples("packer stage photos.pack", "packer stage --list")
)
@click.argument("pack", type=PathOrURL(), required=False)
@click.option("--to", default="auto", metavar="auto|DIR", help="auto: shared memory of this machine; DIR: a folder.")
@click.option(
    "--leave-free", "keep", metavar="20%|SIZE", help="Leave this much memory free.  [default: 20%, at least 1 GiB]"
)
@click.option(
    "--parts",
    callback=parse_counts,
    metavar="0-9,12",
    help="Copy only these parts; datasets read the others from PACK.",
)
@click.option("--as", "codec", metavar="CODEC", help="Copy images in another codec, such as ycc420.")
@click.option("--warm", "action", flag_value="warm", help="Copy nothing: read the parts into the page cache.")
@click.option("--release", "action", flag_value="release", help="Remove the copy, unless a dataset reads it.")
@click.option("--list", "action", flag_value="list", help="List all copies.")
@click.option("--force", is_flag=True, help="With --release: also if a dataset reads it.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(pack: Path | None, *, action: str | None, as_json: bool, **options: Any) -> None:
    """Copy PACK into memory, once per machine, and print the folder to open.

    Datasets use the copy with stage="auto"; for a copy that --as made, also set stage_as="ycc420". A pack that
    does not fit is read into the page cache, with a note. With --to DIR or --as this is an error. PACK can be a URL
    such as s3://bucket/photos.pack. The command then downloads the complete pack once.
    """
    if pack is None and action != "list":
        raise click.UsageError("Missing argument 'PACK'.")
    if options["codec"] is not None and (options["parts"] is not None or action in ("warm", "list")):
        raise click.UsageError("--as excludes --parts, --warm and --list: this copy is always complete.")
    if options["force"] and action != "release":
        raise click.UsageError("--force goes with --release.")
    run = {"list": _list, "release": _release}.get(action or "", _stage)
    run(pack or Path(), warm=action == "warm", as_json=as_json, **options)


def _stage(pack: Path, *, warm: bool, as_json: bool, to: str, **given: Any) -> None:
    from packer.copies.stager import Hooks, Staged, StageOptions, stage_or_warm, warmed
    from packer.pack import manifest as manifests  # keeps `packer --help` light
    from packer.pack.remote_head import read_manifest
    from packer.stores.store import Store
    from packer.stores.url import URLPath

    def staged(hooks: Hooks) -> Staged:
        if given["codec"] is None:
            return (warmed if warm else stage_or_warm)(pack, options, hooks)
        from packer.copies.recoded_copy import stage_recoded  # only this reads packs as sources

        return stage_recoded(pack, given["codec"], options, hooks)

    options = StageOptions(to=to, parts=given["parts"], keep=_keep(given["keep"]))
    manifest = read_manifest(Store(pack.url))[1] if isinstance(pack, URLPath) else manifests.read_pack(pack)
    samples = sum(manifest.parts[number].samples for number in options.numbers(manifest))
    with ProgressBar(quiet=as_json) as bar:
        counter = ProgressCounter(samples, bar)
        hooks = Hooks(lambda: echo("waiting for another process that stages ...", err=True), counter.add)
        done = staged(hooks)
    total = len(manifest.parts) if given["codec"] is None else done.parts
    if as_json:
        print_json({**vars(done), "path": str(done.path), "total_parts": total})
        return
    for line in filter(None, (done.reason, *done.notes)):
        echo(line, err=True)
    shown = f", {size_text(done.copied_bytes)}" if done.how in ("copied", "recoded", "warmed") else ""
    echo(f"{done.how}: {done.parts} of {total} parts{shown}", err=True)
    hand_over([str(done.path)])


def _release(pack: Path, *, as_json: bool, to: str, force: bool, codec: str | None, **_: Any) -> None:
    from packer.copies.leased_folder import OwnedFolder
    from packer.copies.staged_copies import copies_of
    from packer.system.machine_limits import Machine  # keeps `packer --help` light

    place = OwnedFolder.of(to, Machine())
    size = count = 0
    if place.exists():
        with place.locked(lambda: echo("waiting for another process that stages ...", err=True)):
            for copy in copies_of(place, pack, codec):
                size += copy.remove(force=force)
                count += 1
    if as_json:
        print_json({"released": count, "bytes": size})
    else:
        echo(f"{pack}: {f'released, {size_text(size)}' if count else 'no copy there'}")


def _list(pack: Path, *, as_json: bool, to: str, **_: Any) -> None:
    from packer.copies.leased_folder import OwnedFolder
    from packer.copies.staged_copies import copies
    from packer.system.machine_limits import Machine  # keeps `packer --help` light

    found: list[dict[str, Any]] = [copy.describe() for copy in copies(OwnedFolder.of(to, Machine()))]
    if as_json:
        print_json(found)
        return
    for copy in found:
        parts = "whole" if copy["whole"] else f"{copy['parts']} parts"
        use = ", in use" if copy["in_use"] else ""
        codec = f", as {copy['codec']}" if copy["codec"] else ""
        echo(f"{copy['path']}  {size_text(copy['bytes'])}, {parts}{codec}{use}, of {copy['origin'] or 'unknown'}")


def _keep(text: str | None) -> Any:
    from packer.copies.capacity import SpaceKept  # keeps `packer --help` light

    if text is None:
        return None
    if not text.endswith("%"):
        return SpaceKept(bytes=parse_size(text))
    try:
        share = float(text[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise click.BadParameter(f"{text!r}: expected a share such as 20%, or a size such as 2G")
    return SpaceKept(share=share)
