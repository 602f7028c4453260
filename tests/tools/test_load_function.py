"""Functions of the user's by name."""

from pathlib import Path

import pytest

from packer.errors import InvalidRequest, MissingPackage
from packer.tools.measured_workload import load_function


def test_a_function_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_training_4711.py").write_text(
        "class Model:\n    @staticmethod\n    def step(x):\n        return x + 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # taken back after the test
    assert load_function("my_training_4711:Model.step", "--step")(1) == 2


@pytest.mark.parametrize("name", ["", "math", "math:", ":sqrt", "math:no such", "ma th:sqrt", "os.path:join()"])
def test_another_form_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="expected module:function"):
        load_function(name, "--step")


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(MissingPackage, match="no_such_module_4711"):
        load_function("no_such_module_4711:f", "--step")
    with pytest.raises(InvalidRequest, match="no 'cosine'"):
        load_function("math:cosine", "--step")
    with pytest.raises(InvalidRequest, match="function, .*float"):
        load_function("math:pi", "--transform")
