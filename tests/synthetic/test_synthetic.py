import re

import pytest
from click.testing import CliRunner

from packer import synthetic
from packer.cli.synth import command
from packer.errors import PackExists, StorageError
from packer.files.work_folder import ANYTHING, work_folder
from packer.synthetic import base, folder


def tree(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_sets_are_the_modules_of_the_folder():
    assert synthetic.names() == ("coco", "cornell", "folder", "jacquard", "pairs", "table", "voc", "yolo")
    assert all(callable(synthetic.load(name).write) for name in synthetic.names())


def write_small(name, target, *, samples, threads):
    options = {} if name in ("cornell", "jacquard") else {"size": (90, 120), "classes": 3}
    return synthetic.load(name).write(target, samples=samples, seed=4, threads=threads, **options)


# files with a row for each sample, a line each; what stands between rows ends the line before
SHARED = re.compile(r"annotations/instances_\w+\.json|ImageSets/\w+/\w+\.txt|\w+/metadata\.csv")


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


def test_another_seed_gives_other_pictures(tmp_path):
    for seed in (0, 1):
        folder.write(tmp_path / str(seed), samples=1, seed=seed, size=(48, 64))
    assert tree(tmp_path / "0") != tree(tmp_path / "1")


@pytest.mark.parametrize("name", synthetic.names())
def test_a_target_that_is_not_empty_is_refused(name, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(PackExists, match="not empty"):
        write_small(name, tmp_path, samples=1, threads=1)
    assert tree(tmp_path) == {"mine.txt": b"precious"}


def test_a_file_in_the_way_is_refused_and_what_a_stopped_run_left_goes(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PackExists, match="found a file"), base.publishing(tmp_path / "file"):
        pass
    with work_folder(tmp_path / ".set.synth", {"set": ANYTHING}) as work, work.make_folder("set") as left:
        left.write_file("left", b"by a run that was killed")
    with base.publishing(tmp_path / "set") as partial:
        (partial / "a").write_text("x")
    assert tree(tmp_path) == {"file": b"", "set/a": b"x"}


def test_an_empty_target_is_used(tmp_path):
    with base.publishing(tmp_path / "set") as partial:
        (partial / "a").write_text("x")
        (tmp_path / "set").mkdir()
    assert tree(tmp_path) == {"set/a": b"x"}


@pytest.mark.parametrize("problem", [KeyboardInterrupt, ValueError])
def test_a_run_that_ends_early_leaves_nothing(tmp_path, problem):
    def draw(index):
        if index == 2:
            raise problem
        return base.DrawnSample({f"{index}.txt": b"x"})

    with pytest.raises(problem), base.publishing(tmp_path / "set") as partial:
        base.write_samples(draw, partial, samples=5, threads=2)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_refuses_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make"), base.publishing(tmp_path / "file" / "set"):
        pass
    with pytest.raises(StorageError, match="cannot write"):
        base.write_files(tmp_path, {"file/a": b"x"})
    with pytest.raises(PackExists, match="not empty"), base.publishing(tmp_path / "set"):
        (tmp_path / "set").mkdir()
        (tmp_path / "set" / "late").write_text("x")


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
