"""Opening of a folder, a tar file, a zip file or a URL as a tree of files. The first bytes identify an archive."""

from pathlib import Path

from packer.errors import InvalidRequest
from packer.errors import printable as shown
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_tree import EMPTY, SourceRoot
from packer.stores.url import URLPath

_START_BYTES = 512  # size of a tar header


def open_tree(root: Path | FileTree, *, follow_links: bool = False, takes_files: bool = False) -> FileTree:
    """Return the tree of the files below a folder or URL, or in an archive.

    Args:
        root: Path, URL or tree. A tree is returned unchanged.
        follow_links: True follows symbolic links that lead out of a folder.
        takes_files: True allows a file that is not an archive, and returns the tree of the folder that contains it.

    Raises:
        InvalidRequest: A file is not an archive. A missing folder does not raise here, but in `scan`.
        BadInput: An archive is damaged, or packer refuses some members.
    """
    if isinstance(root, FileTree):
        return root
    if isinstance(root, URLPath):
        from packer.sources._trees.store_tree import StoreTree  # imported late: folders need no client of stores

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
            f"{shown(str(root))}: is a file; give the folder of the data set, or a tar or zip file that contains it"
        )
    return tree


def open_archive(path: Path) -> FileTree | None:
    """Return the tree of a tar or zip file, None for any other file. Raises BadInput for a damaged archive."""
    from packer.sources._trees import tar_tree, zip_tree  # imported late: folders do not need zipfile

    place = path.resolve()
    start = SourceRoot(place.parent).start(place.name, _START_BYTES)
    if tar_tree.is_tar(path, start):
        return tar_tree.tar_tree(path)
    return zip_tree.zip_tree(path) if zip_tree.is_zip(start) else None
