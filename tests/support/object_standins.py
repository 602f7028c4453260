"""Stand-ins: classes with the names and modules of torchvision's and Hugging Face's, so that tests run without them.

What they do is what those do as far as packer asks: tests marked `foreign` compare with the libraries themselves.
"""

import copy
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import PIL.Image


def of(module: str) -> Callable[[type], type]:
    """A class of a module that is not imported."""

    def named(cls: type) -> type:
        cls.__module__ = module
        return cls

    return named


# ---- torchvision


def pil_loader(path: str) -> PIL.Image.Image:
    return PIL.Image.open(path).convert("RGB")


pil_loader.__module__ = "torchvision.datasets.folder"


@of("torchvision.datasets.folder")
class DatasetFolder:
    def __init__(
        self, root: Path, loader: Any = pil_loader, transform: Any = None, target_transform: Any = None
    ) -> None:
        self.root = str(root)
        self.loader, self.transform, self.target_transform = loader, transform, target_transform
        self.classes: list[Any] = sorted(path.name for path in root.iterdir() if path.is_dir())
        self.samples = [
            (str(path), number)
            for number, name in enumerate(self.classes)
            for path in sorted((root / name).rglob("*.*"))
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        value = self.loader(path)
        return value if self.transform is None else self.transform(value), label


@of("torchvision.datasets.folder")
class ImageFolder(DatasetFolder):
    pass


# ---- Hugging Face


@of("datasets.features.image")
class Image:
    def __init__(self, mode: str | None = None, decode: bool = True) -> None:
        self.mode, self.decode = mode, decode


@of("datasets.features.features")
class ClassLabel:
    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)


@of("datasets.features.features")
class Value:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


@of("datasets.features.features")
class List:
    def __init__(self, feature: Any) -> None:
        self.feature = feature


@of("datasets.features.audio")
class Audio:
    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


@of("datasets.arrow_dataset")
class Dataset:
    """Rows of a list of dicts; an image is decoded when it is read, as long as its feature says so."""

    def __init__(self, rows: list[dict[str, Any]], features: dict[str, Any], fingerprint: str = "f00d") -> None:
        self.rows, self.features, self._fingerprint = rows, features, fingerprint
        self.format: dict[str, Any] = {"type": None, "columns": list(features)}
        self.decoded = 0

    @property
    def column_names(self) -> list[str]:
        return list(self.features)

    def cast_column(self, name: str, feature: Any) -> "Dataset":
        return self._but(features={**self.features, name: feature})

    def with_format(self, type: str | None = None, columns: list[str] | None = None) -> "Dataset":
        return self._but(
            features={name: each for name, each in self.features.items() if columns is None or name in columns},
            format={"type": type, "columns": columns},
        )

    def select(self, indices: list[int]) -> "Dataset":
        return self._but(rows=[self.rows[index] for index in indices])

    def _but(self, **changed: Any) -> "Dataset":
        made = copy.copy(self)
        vars(made).update(changed)
        return made

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: int | str | slice) -> Any:
        if isinstance(key, str):
            return [self._shown(row)[key] for row in self.rows]
        if isinstance(key, slice):
            rows = [self._shown(row) for row in self.rows[key]]
            return {name: [row[name] for row in rows] for name in self.features}
        return self._shown(self.rows[key])

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self._decoded(row[name]) if isinstance(each, Image | Audio) and each.decode else row[name]
            for name, each in self.features.items()
        }

    def _decoded(self, value: dict[str, Any]) -> PIL.Image.Image:
        self.decoded += 1
        return PIL.Image.open(value["path"] if value["bytes"] is None else io.BytesIO(value["bytes"]))


@of("datasets.iterable_dataset")
class IterableDataset:
    def __init__(self, inner: Dataset) -> None:
        self.inner = inner
        self.features = inner.features

    def cast_column(self, name: str, feature: Any) -> "IterableDataset":
        return IterableDataset(self.inner.cast_column(name, feature))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.inner[index] for index in range(len(self.inner)))


@of("datasets.dataset_dict")
class DatasetDict(dict[str, Dataset]):
    pass


@of("datasets.dataset_dict")
class IterableDatasetDict(dict[str, IterableDataset]):
    pass
