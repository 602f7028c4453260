import re
import shutil

import cv2
import numpy as np
import pytest
from click.testing import CliRunner

from packer import synthetic
from packer.cli.synth import command
from packer.errors import InvalidRequest, PackExists, StorageError
from packer.files.work_folder import ANYTHING, work_folder
from packer.synthetic.folder import class_names
from packer.synthetic.set_writer import DrawnSample, write_set


def tree(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_every_set_has_a_function_that_writes_it():
    assert synthetic.names() == ("coco", "cornell", "folder", "jacquard", "pairs", "table", "voc", "yolo")
    assert all(callable(synthetic.load(name)) for name in synthetic.names())


def write_small(name, target, *, samples, threads):
    options = {} if name in ("cornell", "jacquard") else {"size": (90, 120), "classes": 3}
    return synthetic.load(name)(target, samples=samples, seed=4, threads=threads, **options)


# files with a row for each sample, a line each; what stands between rows ends the line before
SHARED = re.compile(r"annotations/instances_\w+\.json|ImageSets/\w+/\w+\.txt|\w+/metadata\.csv|processedData/z\.txt")


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", synthetic.names())
def test_sets_depend_neither_on_threads_nor_on_how_many_samples_follow(name, tmp_path):
    summary = write_small(name, tmp_path / "three", samples=3, threads=3)
    write_small(name, tmp_path / "two", samples=2, threads=1)
    three, two = tree(tmp_path / "three"), tree(tmp_path / "two")
    assert len(two) < len(three) and two.keys() <= three.keys()
    for path in two:
        if SHARED.fullmatch(path):
            fewer, more = ([line.rstrip(b",") for line in each[path].splitlines()] for each in (two, three))
            assert [line for line in more if line in fewer] == fewer, path
        else:
            assert two[path] == three[path], path
    assert (summary.samples, summary.files, summary.size_bytes) == (3, len(three), sum(map(len, three.values())))
    write_small(name, tmp_path / "again", samples=2, threads=2)
    assert tree(tmp_path / "again") == two


def test_another_seed_gives_other_images(tmp_path):
    for seed in (0, 1):
        synthetic.load("folder")(tmp_path / str(seed), samples=1, seed=seed, size=(48, 64))
    assert tree(tmp_path / "0") != tree(tmp_path / "1")


# writing into a folder


def drawn(index):
    return DrawnSample({f"{index}.txt": b"x"}, {"all/lines.txt": [f"{index}\n"]})


def test_the_rows_of_all_samples_follow_each_other(tmp_path):
    done = write_set(tmp_path / "set", drawn, samples=6, threads=3)
    assert sorted(tree(tmp_path / "set")) == [*(f"{n}.txt" for n in range(6)), "all/lines.txt"]
    assert tree(tmp_path / "set")["all/lines.txt"] == b"0\n1\n2\n3\n4\n5\n"
    assert (done.files, done.size_bytes) == (7, 18)


@pytest.mark.parametrize("name", synthetic.names())
def test_a_target_that_is_not_empty_is_refused(name, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(PackExists, match="not empty"):
        write_small(name, tmp_path, samples=1, threads=1)
    assert tree(tmp_path) == {"mine.txt": b"precious"}


def test_a_file_in_the_way_is_refused_and_the_rest_of_a_killed_run_is_removed(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PackExists, match="found a file"):
        write_set(tmp_path / "file", drawn, samples=1, threads=1)
    with work_folder(tmp_path / ".set.synth", {"set": ANYTHING}) as work, work.make_folder("set") as left:
        left.write_file("left", b"by a run that was killed")
    write_set(tmp_path / "set", drawn, samples=1, threads=1)
    assert tree(tmp_path).keys() == {"file", "set/0.txt", "set/all/lines.txt"}


def test_an_empty_target_is_used_and_one_that_is_filled_meanwhile_is_kept(tmp_path):
    def draw(index):
        (tmp_path / "set").mkdir(exist_ok=True)
        return drawn(index)

    def draw_late(index):
        (tmp_path / "set/0.txt").write_text("late")
        return drawn(index)

    write_set(tmp_path / "set", draw, samples=1, threads=1)
    assert tree(tmp_path / "set")["0.txt"] == b"x"
    shutil.rmtree(tmp_path / "set")
    (tmp_path / "set").mkdir()
    with pytest.raises(PackExists, match="not empty"):
        write_set(tmp_path / "set", draw_late, samples=1, threads=1)
    assert tree(tmp_path) == {"set/0.txt": b"late"}


@pytest.mark.parametrize("problem", [KeyboardInterrupt, ValueError])
def test_a_run_that_ends_early_leaves_nothing(tmp_path, problem):
    def draw(index):
        if index == 2:
            raise problem
        return drawn(index)

    with pytest.raises(problem):
        write_set(tmp_path / "set", draw, samples=5, threads=2)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_refuses_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make"):
        write_set(tmp_path / "file" / "set", drawn, samples=1, threads=1)
    with pytest.raises(StorageError, match="cannot write"):
        write_set(tmp_path / "set", lambda _: DrawnSample({"a": b"", "a/b": b""}), samples=1, threads=1)


# folder


def test_photos_are_in_a_folder_per_class(tmp_path):
    synthetic.load("folder")(tmp_path, samples=12, seed=1, classes=5)
    photos = tree(tmp_path)
    assert len(photos) == 12
    assert {name.split("/")[0] for name in photos} == {"ball", "banana", "bottle", "bowl", "box"}
    for data in photos.values():
        assert shape_of(data) == (375, 500, 3)


def test_a_photo_of_the_standard_size_has_the_bytes_of_a_real_photo(tmp_path):
    done = synthetic.load("folder")(tmp_path / "set", samples=20)
    assert 35_000 < done.size_bytes / 20 < 53_000  # benchmarks compare decoders on them


def test_more_classes_than_kinds_name_the_color_too():
    names = class_names(40)
    assert len(set(names)) == 40
    assert names[0] == ("ball", "red") and names[39] == ("banana", "yellow")


@pytest.mark.parametrize("wish", [{"classes": 0}, {"classes": 10_000}, {"size": (8, 8)}, {"samples": 0}, {"seed": -1}])
def test_folder_refuses_options_outside_their_limits(tmp_path, wish):
    with pytest.raises(InvalidRequest, match="expected"):
        synthetic.load("folder")(tmp_path / "set", **{"samples": 1, **wish})
    assert not list(tmp_path.iterdir())


def test_varied_photos_have_several_sizes(tmp_path):
    synthetic.load("folder")(tmp_path / "set", samples=10, size=None)
    assert len(set(map(shape_of, tree(tmp_path / "set").values()))) > 2


def shape_of(data):
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape


def test_an_unknown_set_is_refused():
    with pytest.raises(InvalidRequest, match="'cocoa'"):
        synthetic.load("cocoa")


# the command


def test_synth_writes_a_set_and_says_what(tmp_path):
    target = tmp_path / "set"
    arguments = ["folder", str(target), "--samples", "4", "--classes", "2", "--size", "64x48", "--threads", "1"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{target}: 4 samples in 4 files")
    assert sorted(tree(target)) == [f"{kind}/{kind}_0000{n}.jpg" for kind in ("ball", "banana") for n in (0, 1)]


@pytest.mark.parametrize(
    "wish", [["cornell", "--size", "64x48"], ["folder", "--size", "64"], ["folder", "--samples", "0"]]
)
def test_synth_refuses_options_that_do_not_fit(tmp_path, wish):
    result = CliRunner().invoke(command, [wish[0], str(tmp_path / "set"), *wish[1:]])
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_synth_takes_varied_sizes(tmp_path):
    result = CliRunner().invoke(command, ["folder", str(tmp_path / "set"), "--samples", "2", "--size", "varied"])
    assert result.exit_code == 0, result.output


def test_synth_on_a_full_folder_is_an_error_with_exit_code_2(tmp_path):
    (tmp_path / "a").write_text("")
    result = CliRunner().invoke(command, ["jacquard", str(tmp_path)])
    assert isinstance(result.exception, PackExists) and result.exception.exit_code == 2
