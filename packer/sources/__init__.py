"""Sources: original data sets on disk -> samples. One file each; see base.py for the contract.

parsing/ holds what they read with, adding/ what can be added to any of them (sidecar files, splits).

A source module has `class Source(base.Source)`, made by `Source(root, **options)`, and
`recognise(names) -> str | None`: given the relative POSIX paths found under a folder, a line that says what was
recognised, or None. Its int `SPECIFICITY` orders them: `--from auto` asks the most specific first.
"""

from pathlib import Path

from packer.errors import InvalidRequest
from packer.registry import Registry
from packer.sources._parse.listing import described, scan, shown
from packer.sources._parse.source_root import SourceRoot

registry = Registry(__name__, __path__[0], "source")
names = registry.names
load = registry.load


def detect(root: Path, *, follow_links: bool = False) -> tuple[str, str]:
    """The name of the source that reads `root`, and a line that says what was recognised.

    follow_links: as of packer.sources._parse.listing.scan. Raises InvalidRequest where none reads it, BadInput as that
    does.
    """
    listing = scan(root, follow_links=follow_links)
    modules = sorted(((load(name), name) for name in names()), key=lambda pair: (-pair[0].SPECIFICITY, pair[1]))
    for module, name in modules:
        sentence = module.recognise(listing.names)
        if sentence is not None:
            return name, sentence
    if not listing.names:
        raise InvalidRequest(f"{shown(str(root))}: there is no file in it; give the folder that holds the images")
    from packer.sources._parse import unread_pictures  # NumPy, which `packer --help` does without

    unread = unread_pictures.unread_pictures(SourceRoot(root, follow_links), listing.names)
    if unread:
        raise InvalidRequest(f"{shown(str(root))}: no images: {unread_pictures.described(unread)}")
    raise InvalidRequest(
        f"{shown(str(root))}: no known data set: found {described(listing.names)}, "
        f"expected one of {', '.join(names())}; give the folder that holds the images, or say which with --from"
    )
