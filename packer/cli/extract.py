"""packer extract: writes the original files of a pack into a folder."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from packer.cli._shared_options import (
    Group,
    NamedPath,
    PackOrURL,
    examples,
    print_json,
    scratch_option,
)
from packer.errors import CorruptPack
from packer.files.progress_bar import ProgressBar
from packer.files.terminal_output import echo
from packer.system.byte_sizes import size_text

_SHOWN = 20


PLACE = (Group.LOOK_AT_A_PACK, 3)


@click.command(
    short_help="Write the original files of a pack.", epilog=examples("packer extract photos.pack photos-again/")
)
@click.argument("pack", type=PackOrURL())
@click.argument("folder", metavar="DIR", type=NamedPath())
@click.option("--only-exact", is_flag=True, help="Write only original files, not values that were encoded again.")
@click.option("--skip-bad", is_flag=True, help="Skip damaged values and list them; exit code 3 at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@scratch_option
def command(pack: Path, folder: Path, *, only_exact: bool, skip_bad: bool, as_json: bool, scratch: Path | None) -> None:
    """Write the original files of PACK into the new folder DIR. PACK may be a URL.

    Files whose bytes were kept have their original bytes and names. Files that were encoded again are counted
    separately and have a suffix that fits their bytes. DIR appears complete or not at all.
    """
    from packer.inspect.extraction import extract  # keeps `packer --help` light

    with ProgressBar(quiet=as_json) as progress:
        summary = extract(pack, folder, only_exact=only_exact, skip_bad=skip_bad, scratch=scratch, progress=progress)
    if as_json:
        print_json({**vars(summary), "folder": str(folder)})
    else:
        for path, reason in summary.skipped[:_SHOWN]:
            echo(f"skipped {path!r}: {reason}", err=True)
        if len(summary.skipped) > _SHOWN:
            echo(f"... and {len(summary.skipped) - _SHOWN} more skipped; --json lists them", err=True)
        for name, codec in summary.changed.items():
            echo(f"field {name}: not the original files, they were packed as {codec}", err=True)
        for name in summary.numbered:
            echo(f"field {name}: the numbers of its classes, not the colors that its files were drawn in", err=True)
        unmoved = [f"field {name}" for name in summary.unmoved]
        unmoved += [f"{summary.unmoved_extras} files without a sample"] * (summary.unmoved_extras > 0)
        if unmoved:
            echo(
                f"{', '.join(unmoved)}: in the pixels of the source, as its files were, and not in those of the "
                "images written here, which were moved when they were packed",
                err=True,
            )
        if summary.left_behind:
            echo(f"{summary.left_behind} files without a sample are not in the pack: see --extras", err=True)
        for line in summary.damaged:
            echo(line, err=True)
        echo(
            f"{folder}: {summary.files} files written ({size_text(summary.bytes)}): {summary.exact} exact, "
            f"{summary.reencoded} re-encoded; {len(summary.skipped)} skipped{_why_skipped(summary.skipped)}"
        )
    if summary.damaged:
        raise CorruptPack(f"{pack}: damaged values skipped: {len(summary.damaged)}")


def _why_skipped(skipped: Sequence[tuple[str, str]]) -> str:
    """Return each reason with its number of skipped files, as the end of a message; "" if no file was skipped."""
    counts = Counter(reason for _, reason in skipped)
    return f": {'; '.join(f'{count} since {reason}' for reason, count in counts.items())}" if counts else ""
