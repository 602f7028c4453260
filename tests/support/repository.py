"""Files of the repository that are no modules of packer: programs and pages."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def loaded(path: str) -> ModuleType:
    """A program as a module, such as examples/train_ggcnn.py."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: str, kind: str = "python") -> list[str]:
    """The blocks of code in the text of a page."""
    return re.findall(rf"^```{kind}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
