"""Open tree: a folder, a tar, a zip file or a URL as a tree of files; its first bytes identify an archive."""

from pathlib import Path

from packer.errors import InvalidRequest
from packer.errors import printable as shown
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_tree import EMPTY, SourceRoot
from packer.stores.url import URLPath

_START_BYTES = 512  # a header of tar


def open_tree(root: Path | FileTree, *, follow_links: bool = False, takes_files: bool = False) -> FileTree:
    """Return the files below a folder or a URL, or in an archive; a tree is returned as it is.

    Args:
        root: a path, a URL or a tree.
        follow_links: whether links out of a folder are followed.
        takes_files: whether the root may be another file; the tree is then its folder.

    Raises:
        InvalidRequest: A file is not an archive. A missing folder raises when it is listed.
        BadInput: An archive is damaged, or packer refuses some of its members.
    """
    if isinstance(root, FileTree):
        return root
    if isinstance(root, URLPath):
        from packer.sources._trees.store_tree import StoreTree  # the client of the stores, which folders do without

        return StoreTree(root)
    if not root.is_file():
        return SourceRoot(root, follow_links)
    tree = open_archive(root)
    if tree is None and takes_files:
        return SourceRoot(root.parent, follow_links)
    if tree is None and not root.stat().st_size:
        raise InvalidRequest(f"{shown(str(root))}: {EMPTY}")
    if tree is None:
        raise InvalidRequest(
            f"{shown(str(root))}: is a file; give the folder of the data set, or a tar or zip file that holds it"
        )
    return tree


def open_archive(path: Path) -> FileTree | None:
    """Return the files in an archive, None for another file; raises BadInput."""
    from packer.sources._trees import tar_tree, zip_tree  # zipfile, which a folder does without

    place = path.resolve()
    start = SourceRoot(place.parent).start(place.name, _START_BYTES)
    if tar_tree.is_tar(path, start):
        return tar_tree.tar_tree(path)
    return zip_tree.zip_tree(path) if zip_tree.is_zip(start) else None
