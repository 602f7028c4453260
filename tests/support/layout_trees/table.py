"""Two splits with a metadata.csv each: quoted commas and newlines, a BOM, CRLF, masks, labels, numbers with gaps."""

from pathlib import Path

from tests.support.source_trees import image, mask, write

TRAIN = (
    "\ufefffile_name,mask_file_name,label,caption,age,id\r\n"
    'b.png,masks/b.png,dog,"a dog, ""small"",\r\nasleep",3,007\r\n'
    "cats/a.jpg,masks/a.png,cat,ünï,,010\r\n"
    "\r\n"
    "cats/c d.png,masks/c.png,cat,NA,4.5,9\r\n"
)
TEST = "file_name,mask_file_name,label,caption,age,id\nz.png,masks/z.png,cat,x,0.5,1"


def build(root: Path) -> Path:
    """The tree, with an image that no row names."""
    files: dict[str, bytes | str] = {
        "train/metadata.csv": TRAIN.encode(),
        "train/b.png": image(1),
        "train/cats/a.jpg": image(2, suffix=".jpg"),
        "train/cats/c d.png": image(3),
        "train/masks/a.png": mask(1),
        "train/masks/b.png": mask(2),
        "train/masks/c.png": mask(3),
        "test/metadata.csv": TEST.encode(),
        "test/z.png": image(4),
        "test/masks/z.png": mask(4),
        "test/unlabeled.png": image(5),
        "README.md": "of no sample",
    }
    return write(root, files)
