"""Small trees of files as the sources meet them, made by code: images are noise, labels are invented."""

import os
import pickle
import shlex
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import cv2
import h5py
import numpy as np
import numpy.typing as npt

from packer.sources.base import Source
from tests.support import arrow_payloads, foreign_files, layout_trees

HASH_32 = "1d0a4c5e6b7f8899aabbccddeeff0011"
HASH_31 = "2f486fc43af412df22ebff72a57eff4"
NAN_RECTANGLE = "NaN NaN \n256 313 \n277 313 \nNaN NaN\n"
RECTANGLES = "253 319.7 \n309 324 \n307 350 \n251 345.7\n10 10 \n10 30 \n2.5 30 \n2.5 10\n"  # both windings
CLOUD_HEADER = (
    "# .PCD v.7 - Point Cloud Data file format\nFIELDS x y z rgb index\nSIZE 4 4 4 4 4\nTYPE F F F F U\n"
    "COUNT 1 1 1 1 1\nWIDTH {0}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {0}\nDATA ascii\n"
)


def write(root: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write files by relative path; returns root."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return root


def encoded(suffix: str, array: npt.NDArray[np.uint8] | npt.NDArray[np.float32]) -> bytes:
    """An image file as OpenCV writes it."""
    done, data = cv2.imencode(suffix, array)
    if not done:
        raise ValueError(f"cannot encode {suffix}")
    return data.tobytes()


def image(seed: int, *, suffix: str = ".png", height: int = 48, width: int = 64) -> bytes:
    """A color image of noise."""
    return encoded(suffix, np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def depth(seed: int, *, height: int = 48, width: int = 64) -> bytes:
    """A float32 TIFF in meters with a few pixels of the wrong 0.03 m."""
    values = np.random.default_rng(seed).uniform(0.7, 2.1, (height, width)).astype(np.float32)
    values[-1, :3] = 0.033
    return encoded(".tiff", values)


def stereo_depth(seed: int, *, height: int = 48, width: int = 64) -> bytes:
    """A float32 TIFF in meters with a patch of -1."""
    values = np.random.default_rng(seed).uniform(1.2, 1.6, (height, width)).astype(np.float32)
    values[5:9, 7:20] = -1
    return encoded(".tiff", values)


def mask(seed: int, *, height: int = 48, width: int = 64) -> bytes:
    """A gray PNG of 0 and 255."""
    values = np.zeros((height, width), np.uint8)
    values[10 : 20 + seed % 10, 20:40] = 255
    return encoded(".png", values)


def cloud(*, height: int = 48, width: int = 64, seed: int = 0) -> str:
    """A point cloud as text: ascending indices with holes in blocks, millimeters, one color that is NaN."""
    random = np.random.default_rng(seed)
    valid = np.ones((height, width), bool)
    valid[8:14, 10:30] = False
    valid[30:33, :] = False
    lines = [
        f"{x:.3f} {y:.3f} {z:.4f} {'NaN' if index == 5 else '2.35099e-38' if index == 9 else '0'} {index}"
        for index, (x, y, z) in zip(
            np.flatnonzero(valid), random.uniform(-900, 1900, (valid.sum(), 3)).tolist(), strict=True
        )
    ]
    return CLOUD_HEADER.format(len(lines)) + "\n".join(lines) + "\n"


def scene(number: str, seed: int, *, cpos: str = RECTANGLES, cneg: str = RECTANGLES[:42]) -> dict[str, bytes | str]:
    """The five files of a Cornell scene, by name."""
    return {
        f"pcd{number}r.png": image(seed),
        f"pcd{number}d.tiff": depth(seed),
        f"pcd{number}cpos.txt": cpos,
        f"pcd{number}cneg.txt": cneg,
        f"pcd{number}.txt": cloud(seed=seed),
    }


def cornell(root: Path) -> Path:
    """The Cornell set as it was published, with few scenes: numbers with gaps, a NaN rectangle, an empty cneg."""
    for folder, number in (("01", "0100"), ("01", "0101"), ("02", "0200"), ("10", "1034")):
        cpos = RECTANGLES + NAN_RECTANGLE if number == "0101" else RECTANGLES
        files = scene(number, int(number), cpos=cpos, cneg="" if number == "0200" else RECTANGLES)
        write(root / folder, files)
    table = "".join(f"{number} {obj} {name} pcdb_0002\n" * 2 for number, obj, name in CORNELL_OBJECTS)
    write(root, {"processedData/z.txt": table, "backgrounds/pcdb0002r.png": image(1)})
    return write(root / "01", {"pcd0100vis.png": b"foreign", "pcd0100rCropped320.png": b"foreign"}).parent


CORNELL_OBJECTS = (
    ("0000", 0, "Aluminum_Can"),  # no such scene
    ("0100", 26, "Plastic_Cup"),
    ("0101", 26, "Plastic_Cup"),
    ("0200", 27, "Plastic_Cup"),
    ("1034", 281, "Marker"),
)
JACQUARD_ROWS = "52.5;40.25;68.2203;25.5;26.0661\r\n52.5;40.25;68.2203;25.5;13.03305\r\n20;30;-89.94;12;24\r\n"


def view(key: str, seed: int, *, grasps: str | None = JACQUARD_ROWS) -> dict[str, bytes | str]:
    """The files of a Jacquard view, by name."""
    files: dict[str, bytes | str] = {
        f"{key}_RGB.png": image(seed),
        f"{key}_mask.png": mask(seed),
        f"{key}_perfect_depth.tiff": depth(seed),
        f"{key}_stereo_depth.tiff": stereo_depth(seed),
    }
    return files if grasps is None else files | {f"{key}_grasps.txt": grasps}


def jacquard(root: Path) -> Path:
    """Two objects in two parts, hashes of 32 and 31 characters, one view without grasps, foreign files."""
    for part, name, count in (("Jacquard_Dataset_0", HASH_32, 2), ("Jacquard_Dataset_11", HASH_31, 2)):
        for number in range(count):
            grasps = None if (name, number) == (HASH_31, 1) else JACQUARD_ROWS
            write(root / part / name, view(f"{number}_{name}", number, grasps=grasps))
    return write(root, {".DS_Store": b"", f"Jacquard_Dataset_0/{HASH_32}/0_{HASH_32}_mask_d.png": b"foreign"})


def image_folder(root: Path) -> Path:
    """Three classes with a nested folder, upper-case suffixes, apostrophes, spaces, Unicode and a newline in names."""
    return write(
        root,
        {
            "cat/b.jpg": image(1, suffix=".jpg"),
            "cat/A.JPEG": image(2, suffix=".jpg", height=20),
            "cat/deep er/c.png": image(3),
            "dog's/ünï.png": image(4),
            "dog's/new\nline.bmp": image(5, suffix=".bmp"),
            "Zebra/1.webp": image(6, suffix=".webp"),
            "cat/notes.txt": "no image",
        },
    )


def tfrecord_shards(root: Path) -> Path:
    """Two TFRecord files, one with its index: images of two kinds, a label, a text, a list of any length."""
    shards = []
    for shard in range(2):
        records = []
        for number in range(3):
            features = {
                "image/encoded": foreign_files.bytes_list(image(9 * shard + number, suffix=(".jpg", ".png")[shard])),
                "image/class/label": foreign_files.int64_list([number - 1]),
                "image/filename": foreign_files.bytes_list(f"ünï {number}.jpg".encode()),
                "box": foreign_files.float_list([0.5, float("nan")][: number % 3]),
            }
            records.append(foreign_files.example(features))
        shards.append(records)
    files = {
        "train-00000-of-00002.tfrecord": foreign_files.tfrecord(shards[0]),
        "train-00001-of-00002.tfrecord": foreign_files.tfrecord(shards[1]),
        "train-00001-of-00002.tfrecord.idx": foreign_files.tfrecord_index(shards[1]),
        "README.md": "of no record",
    }
    return write(root, files)


def recordio_files(root: Path) -> Path:
    """A .rec file with its .idx and .lst, whose paths have spaces and one name in two folders."""
    names = ("cat/a b.jpg", "dog/a b.jpg", "dog/ünï.png", "dog/c.jpg")
    numbers = (3, 0, 2, 17)
    records = [
        foreign_files.recordio_image(image(at, suffix=Path(name).suffix), float(name < "d"), number)
        for at, (name, number) in enumerate(zip(names, numbers, strict=True))
    ]
    listed = sorted(zip(numbers, names, strict=True))
    files = {
        "train.rec": foreign_files.recordio(records),
        "train.idx": foreign_files.recordio_index(records, numbers),
        "train.lst": "".join(f"{number}\t{float(name < 'd'):f}\t{name}\n" for number, name in listed),
        "property": "2,48,64",
    }
    return write(root, files)


def tar_shards(root: Path) -> Path:
    """Two tar files whose names come again, long and with spaces: images of two suffixes, a mask, a label, a text."""
    files = {}
    for shard in range(2):
        members: dict[str, bytes] = {"__info__": b"of no sample"}
        for number in range(2):
            name = f"{'d' * 95 * number}/a b.c/{number:04d}".lstrip("/")
            members[f"{name}.{('JPG', 'png')[shard]}"] = image(2 * shard + number, suffix=(".jpg", ".png")[shard])
            members[f"{name}.seg.png"] = mask(number)
            members[f"{name}.cls"] = b" %d\n" % (number - 1)
            members[f"{name}.txt"] = f"ünï {number}".encode()
        files[f"shard-{shard:06d}.tar"] = foreign_files.tar_archive(members)
    return write(root, {**files, "README.md": "of no record"})


def caffe_lmdb(root: Path) -> Path:
    """A folder with data.mdb: keys with gaps, paths with spaces, labels 0 and negative."""
    names = ("cat/a b.jpg", "cat/ünï.png", "dog/a b.jpg")
    entries = {
        f"{2 * at:08d}_{name}".encode(): foreign_files.datum(image(at, suffix=Path(name).suffix), at - 1, 3, 48, 64)
        for at, name in enumerate(names)
    }
    foreign_files.lmdb_environment(root, entries)
    return write(root, {"mean.txt": "of no record"})


def efficient_lmdb(root: Path) -> Path:
    """One file: more than ten numbers, whose keys sort otherwise than they count."""
    entries = {str(at).encode(): pickle.dumps((image(at), at % 3), protocol=3 + at % 3) for at in range(12)}
    entries |= {b"__keys__": pickle.dumps(sorted(entries)), b"__len__": pickle.dumps(12)}
    foreign_files.lmdb_environment(root / "train.lmdb", entries, is_folder=False)
    return root


def image2lmdb(root: Path) -> Path:
    """One file with its list of names: more than ten numbers, one name with a space."""
    names = [f"{at:03d} a.png" if at == 3 else f"{at:03d}.png" for at in range(12)]
    entries = {str(at).encode(): arrow_payloads.built(image(at)) for at in range(12)}
    entries |= {b"__keys__": arrow_payloads.built(sorted(entries)), b"__len__": arrow_payloads.built(12)}
    foreign_files.lmdb_environment(root / "train.lmdb", entries, is_folder=False)
    lines = "".join(f"{name} {at}\n" for at, name in enumerate(names))
    return write(root, {"train_images_idx.txt": lines, "README.md": "of no record"})


def basicsr_lmdb(root: Path) -> Path:
    """A folder with PNG files under names, as BasicSR 1.x writes it."""
    entries = {f"{at:03d} s{at:03d}".encode(): image(at) for at in range(3)}
    foreign_files.lmdb_environment(root, entries)
    return write(root, {"meta_info.txt": "".join(f"{at:03d} s{at:03d}.png (48,64,3) 1\n" for at in range(3))})


def tensorpack_lmdb(root: Path) -> Path:
    """One file of datapoints: an image file in an array, a label, a text."""
    entries = {
        b"%08d" % at: pickle.dumps([np.frombuffer(image(at), np.uint8), at % 3, f"n {at}"], protocol=3 + at % 3)
        for at in range(12)
    }
    entries |= {b"__keys__": pickle.dumps(sorted(entries))}
    foreign_files.lmdb_environment(root / "train.lmdb", entries, is_folder=False)
    return root


def hdf5_file(root: Path) -> Path:
    """One file: encoded images of any length, depth in compressed chunks, labels, names and boxes."""
    root.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    with h5py.File(root / "set.h5", "w") as file:
        images = file.create_dataset("images", (7,), h5py.vlen_dtype(np.uint8))
        for row in range(7):
            images[row] = np.frombuffer(image(row, suffix=(".jpg", ".png")[row % 2]), np.uint8)
        depths = random.random((7, 48, 64), np.float32)
        file.create_dataset("depth", data=depths, chunks=(3, 17, 64), compression="gzip", shuffle=True)
        file["labels"] = np.arange(7, dtype=">i4") - 1
        file["names"] = np.array([f"ünï {row}" for row in range(7)], h5py.string_dtype())
        file["box"] = random.random((7, 4))
        file["mean"] = np.zeros((48, 64, 3))
        file["other"] = h5py.ExternalLink("elsewhere.h5", "/")
    return write(root, {"README.md": "of no sample"})


def npz_file(root: Path) -> Path:
    """One compressed file with images in planes, masks and labels of two dimensions."""
    root.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(4)
    np.savez_compressed(
        root / "train.npz",
        x_train=random.integers(0, 256, (5, 3, 20, 30), np.uint8),
        y_train=np.arange(5, dtype=np.uint8).reshape(5, 1),
        mask_train=random.integers(0, 2, (5, 20, 30, 1), np.uint8),
        classes=np.array(["a", "b"]),
    )
    return write(root, {"README.md": "of no sample"})


def n5_container(root: Path) -> Path:
    """Images in blocks of two rows, some short; labels in raw blocks."""
    pixels = np.random.default_rng(6).integers(0, 256, (5, 20, 30, 3), np.uint8)
    foreign_files.n5_dataset(root / "images", pixels, block=(2, 20, 30, 3))
    foreign_files.n5_dataset(root / "labels", np.arange(5) - 1, block=(3,), compression="raw")
    return write(root, {"attributes.json": '{"n5": "4.0.0"}', "README.md": "of no sample"})


def npy_files(root: Path) -> Path:
    """Images in Fortran order, and the names of their classes; one array to a file."""
    root.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(5).integers(0, 256, (6, 20, 30, 3), np.uint8)
    np.save(root / "images.npy", np.asfortranarray(pixels))
    return write(root, {"README.md": "of no sample"})


BUILDERS: dict[str, Callable[[Path], Path]] = {
    "basicsr-lmdb": basicsr_lmdb,
    "efficient-lmdb": efficient_lmdb,
    "image2lmdb": image2lmdb,
    "tensorpack-lmdb": tensorpack_lmdb,
    "caffe-lmdb": caffe_lmdb,
    "cornell": cornell,
    "folder": image_folder,
    "hdf5": hdf5_file,
    "n5": n5_container,
    "npy": npy_files,
    "npz": npz_file,
    "jacquard": jacquard,
    "recordio": recordio_files,
    "tfrecord": tfrecord_shards,
    "webdataset": tar_shards,
    **layout_trees.builders(),
}


def photos(root: Path, count: int = 12, *, classes: int = 3, height: int = 24, width: int = 32) -> Path:
    """An image folder of small JPEGs of one size."""
    files = {
        f"class{number % classes}/{number:04d}.jpg": image(number, suffix=".jpg", height=height, width=width)
        for number in range(count)
    }
    return write(root, files)


def keys(source: Source) -> list[str]:
    """The keys of all samples."""
    return [source.key(row) for row in range(len(source))]


def tree(root: Path) -> dict[bytes, bytes]:
    """Relative path -> content of every file below root."""
    found = {}
    for folder, _, names in os.walk(os.fsencode(root)):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, os.fsencode(root))] = file.read()
    return found


def pasted_features(text: str) -> tuple[str, ...]:
    """The value of each --feature in a note or an error, as a shell reads it."""
    return tuple(word for option, word in pairwise(shlex.split(text)) if option == "--feature" and "=" in word)
