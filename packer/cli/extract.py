"""packer extract: the original files out of a pack."""

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
    size_text,
)
from packer.errors import CorruptPack
from packer.files.progress_bar import ProgressBar
from packer.files.terminal_output import echo

_SHOWN = 20


PLACE = (Group.LOOK_AT_IT, 3)


@click.command(
    short_help="Write the files that a pack was made of.", epilog=examples("packer extract photos.pack photos-again/")
)
@click.argument("pack", type=PackOrURL())
@click.argument("folder", metavar="DIR", type=NamedPath())
@click.option("--only-exact", is_flag=True, help="Leave out the files that were encoded anew when they were packed.")
@click.option("--skip-bad", is_flag=True, help="Leave out damaged values and list them; exit code 3 at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for machines, and no progress.")
@scratch_option
def command(pack: Path, folder: Path, *, only_exact: bool, skip_bad: bool, as_json: bool, scratch: Path | None) -> None:
    """Write the files that PACK was made of into the new folder DIR. PACK may be a URL.

    Files whose bytes were kept come back byte for byte under their names. Those that were encoded anew are counted
    apart, and get a suffix that fits their bytes. DIR appears complete or not at all.
    """
    from packer.inspect.extraction import extract  # keeps `packer --help` light

    with ProgressBar(quiet=as_json) as progress:
        found = extract(pack, folder, only_exact=only_exact, skip_bad=skip_bad, scratch=scratch, progress=progress)
    if as_json:
        print_json({**vars(found), "folder": str(folder)})
    else:
        for path, reason in found.skipped[:_SHOWN]:
            echo(f"skipped {path!r}: {reason}", err=True)
        if len(found.skipped) > _SHOWN:
            echo(f"... and {len(found.skipped) - _SHOWN} more skipped; --json lists them", err=True)
        for name, codec in found.changed.items():
            echo(f"field {name}: not the original files, they were packed as {codec}", err=True)
        for name in found.numbered:
            echo(f"field {name}: the numbers of its classes, not the colours that its files were drawn in", err=True)
        unmoved = [f"field {name}" for name in found.unmoved]
        unmoved += [f"{found.unmoved_extras} files of no sample"] * (found.unmoved_extras > 0)
        if unmoved:
            echo(
                f"{', '.join(unmoved)}: in the pixels of the source, as its files were, and not in those of the "
                "pictures written here, which were moved when they were packed",
                err=True,
            )
        if found.left_behind:
            echo(f"{found.left_behind} files of no sample are not in the pack: see --extras", err=True)
        for line in found.damaged:
            echo(line, err=True)
        echo(
            f"{folder}: {found.files} files written ({size_text(found.bytes)}): {found.exact} exact, "
            f"{found.reencoded} re-encoded; {len(found.skipped)} skipped{_why_skipped(found.skipped)}"
        )
    if found.damaged:
        raise CorruptPack(f"{pack}: damaged values left out: {len(found.damaged)}")


def _why_skipped(skipped: Sequence[tuple[str, str]]) -> str:
    """Each reason with the number of its files; nothing where none was skipped."""
    counts = Counter(reason for _, reason in skipped)
    return f": {'; '.join(f'{count} since {reason}' for reason, count in counts.items())}" if counts else ""
