"""FFCV: a .beton file with the photos' own JPEG bytes, or raw images; its compiled Loader, os_cache on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.images import RATIO, SCALE, Image, files, raw
from benchmarks.harness.job import Job

TASKS = {"full": ("",), "rrc": ("",), "raw224": ("",), "big": ("",)}
WITHOUT: dict[str, str] = {}
DOES = (
    "its Loader with OrderOption.RANDOM and os_cache; SimpleRGBImageDecoder or RandomResizedCropRGBImageDecoder, then "
    "RandomHorizontalFlip, ToTensor; always the fast DCT; crops are resized with INTER_AREA, it has no other"
)
PACKAGES = ("ffcv", "numba", "torch")
SYSTEM = ("libopencv-core-dev", "libopencv-imgproc-dev", "libturbojpeg0-dev")


class Jpegs:
    """(bytes of a JPEG file,) per index; with raw images (array,)."""

    def __init__(self, job: Job) -> None:
        self.raw = job.task == "raw224"
        self.values: Any = raw(job.images) if self.raw else files(job.images)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> tuple[Any]:
        value = self.values[index]
        return (np.array(value) if self.raw else Path(value).read_bytes(),)


def prepare(job: Job) -> None:
    from ffcv.fields import RGBImageField
    from ffcv.fields.rgb_image import IMAGE_MODES
    from ffcv.writer import DatasetWriter

    class Verbatim(RGBImageField):  # type: ignore[misc]
        """Stores the file's bytes; its parent would decode and encode them once more."""

        def encode(self, destination: Any, image: bytes, malloc: Any) -> None:
            import cv2

            data = np.frombuffer(image, np.uint8)
            destination["mode"] = IMAGE_MODES["jpg"]
            destination["height"], destination["width"] = cv2.imdecode(data, cv2.IMREAD_COLOR).shape[:2]
            destination["data_ptr"], storage = malloc(data.nbytes)
            storage[:] = data

    field = RGBImageField(write_mode="raw") if job.task == "raw224" else Verbatim(write_mode="jpg")
    writer = DatasetWriter(str(job.work / "set.beton"), {"image": field}, num_workers=job.threads)
    writer.from_indexed_dataset(Jpegs(job))


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    from ffcv.fields import RGBImageField
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor

    if job.crops:
        crop = RandomResizedCropRGBImageDecoder((job.side, job.side), scale=SCALE, ratio=RATIO)
        steps = [crop, RandomHorizontalFlip(), ToTensor()]
    else:
        steps = [SimpleRGBImageDecoder(), ToTensor()]
    loader = Loader(
        str(job.work / "set.beton"),
        batch_size=job.batch_size,
        num_workers=job.threads,
        os_cache=True,
        order=OrderOption.RANDOM,
        drop_last=False,
        pipelines={"image": steps},
        custom_fields={} if job.task == "raw224" else {"image": RGBImageField},
    )

    def epoch() -> Iterator[Image]:
        for (batch,) in loader:
            yield batch.numpy()

    return epoch
