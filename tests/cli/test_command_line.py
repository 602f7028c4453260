"""The command line: what people see, exit codes, lightness."""

import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import packer
from packer import cli, sources
from packer.cli import main, registry
from packer.cli._shared_options import RegistryName, parse_size
from packer.datasets.pack_dataset import LMDBDataset
from packer.errors import CorruptPack, Interrupted, InvalidRequest, PackExists, StorageError
from packer.files.progress_bar import ProgressBar
from packer.pack import manifest
from packer.sources._option_table import OPTIONS
from packer.system.byte_sizes import size_text
from packer.system.progress_callback import ProgressCounter
from tests.support import source_trees
from tests.support.command_line import called, run, run_here
from tests.support.object_server import ObjectServer
from tests.support.source_trees import image, photos, write


def test_the_list_of_commands_cuts_nothing_off() -> None:
    shown = called("--help").output.partition("Make a pack:")[2]
    assert "..." not in shown
    assert "Other commands" not in shown
    assert {*registry.names()} <= set(re.findall(r"^  ([a-z]+)  ", shown, re.MULTILINE))


def test_every_command_has_help() -> None:
    assert set(registry.names()) >= {"convert", "info", "verify", "synth", "formats"}
    for name in registry.names():
        result = called(name, "--help")
        assert result.exit_code == 0
        assert len(result.output.splitlines()) > 3
        lines = re.findall(r"^    (packer .*)$", result.output.partition("Example")[2], re.MULTILINE)
        assert lines, name
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for line in lines:
            _, called_as, *words = shlex.split(line.partition("|")[0])
            assert called_as == name
            options = {text for option in command.params for text in option.opts}
            assert {word for word in words if re.match("--?[a-z]", word)} <= options, line


def test_json_is_a_flag_in_every_command_and_figures_go_to_output() -> None:
    for name in registry.names():
        command = main.get_command(click.Context(main), name)
        assert command is not None
        options = {text: option for option in command.params for text in option.opts}
        assert "--json" not in options or options["--json"].is_flag, name  # type: ignore[attr-defined]
        if name in ("stats", "advise", "bench", "tune", "profile"):
            assert {"--json", "--output"} <= set(options), name


def test_convert_info_verify_say_what_they_found(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    done = run("convert", root, tmp_path / "out.pack")
    assert done.returncode == 0, done.stderr
    assert "4 samples packed, 0 skipped" in done.stdout
    assert "4 scenes" in done.stderr
    info = run("info", tmp_path / "out.pack")
    assert "4 samples, format lmdb" in info.stdout
    assert "grasps" in info.stdout
    assert run("info", tmp_path / "out.pack", "--keys").stdout.split() == ["0100", "0101", "0200", "1034"]
    assert run("verify", tmp_path / "out.pack").stdout.endswith("ok\n")


def test_json_is_one_line_that_machines_read(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    (root / "class0/0003.jpg").write_bytes(b"")
    plan = run_here("convert", root, tmp_path / "out.pack", "--dry-run", "--json")
    assert json.loads(plan.stdout)["samples"] == 6
    assert not (tmp_path / "out.pack").exists()
    done = run_here("convert", root, tmp_path / "out.pack", "--json", "--on-error", "skip")
    found = json.loads(done.stdout)
    assert (found["samples"], found["skipped"][0][0]) == (5, "class0/0003.jpg")
    assert done.stderr == ""
    assert json.loads(run_here("info", tmp_path / "out.pack", "--json").stdout)["pack_id"] == found["pack_id"]
    assert json.loads(run_here("verify", tmp_path / "out.pack", "--json").stdout)["ok"] is True
    assert "lmdb" in json.loads(run_here("formats", "--json").stdout)["format"]


def test_a_dry_run_names_fields_size_and_space_and_writes_nothing(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    done = run_here("convert", root, tmp_path / "out.pack", "--resize", "16", "--dry-run")
    assert "would pack 6 samples" in done.stdout
    assert "jpeg:95" in done.stdout
    assert "nothing was written" in done.stdout
    assert os.listdir(tmp_path) == ["in"]


def test_a_dry_run_ends_as_the_real_run_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "in", 6)
    target = tmp_path / "out.pack"
    plain = called("convert", root, target, "--dry-run")
    assert plain.exit_code == 0
    assert "verdict: no problem found" in plain.output
    told = called("convert", root, target, "--dry-run", "--json")
    assert json.loads(told.stdout) | {"ok": True, "images_checked": False} == json.loads(told.stdout)
    with monkeypatch.context() as patch:
        patch.setattr("packer.conversion.pack_build.free_bytes", lambda path: 1000)
        full = called("convert", root, target, "--dry-run")
        assert isinstance(full.exception, StorageError)
        assert "bytes are needed while packing, 1,000 are free" in str(full.exception)
        assert "verdict: would fail" in full.output
        told = called("convert", root, target, "--dry-run", "--json")
        assert json.loads(told.stdout)["ok"] is False

    def read_only(*_: object) -> int:
        raise StorageError("Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("packer.files.work_folder._made_or_opened", read_only)
        assert isinstance(called("convert", root, target, "--dry-run").exception, StorageError)
    assert os.listdir(tmp_path) == ["in"]
    assert run_here("convert", root, target).returncode == 0
    assert run_here("convert", root, target, "--dry-run").returncode == 2
    assert sorted(os.listdir(tmp_path)) == ["in", "out.pack"]


def test_convert_ends_with_what_to_do_next(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    for format in ("lmdb", "hdf5", "pth", "bmp"):
        pack = tmp_path / f"{format}.pack"
        said = called("convert", root, pack, "--to", format).stdout
        code = f"import packer; dataset = packer.open({str(pack)!r})"
        assert said.splitlines()[1] == f"open it:  {code}"
        assert ("packer advise" in said) == (format != "bmp")  # which keeps no bytes
        names: dict[str, Any] = {}
        exec(code, names)  # what it prints is there to be pasted
        assert len(names["dataset"]) == 6
    said = called("convert", root, tmp_path / "small.pack", "--resize", "16").stdout
    assert "packer advise" not in said
    for split in ("train", "val"):
        shutil.copytree(root, tmp_path / "two sets" / split)
    said = called("convert", tmp_path / "two sets", tmp_path / "two.pack", "--folders", "split/class").stdout
    assert f"packer advise '{tmp_path}/two sets' --folders split/class measures" in said
    archive = shutil.make_archive(str(tmp_path / "photos"), "zip", root)
    said = called("convert", archive, tmp_path / "of_zip.pack").stdout  # which advise does not read
    assert "--resize N, if the images are larger" in said and "packer advise" not in said
    pack = tmp_path / "cornell.pack"
    said = called("convert", source_trees.cornell(tmp_path / "cornell"), pack, "--preset", "ggcnn").stdout
    assert f"GraspDataset({str(pack)!r}, style='ggcnn')" in said


def test_enlarging_is_said(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6, height=30, width=40)
    for words in (("--dry-run",), ()):
        said = called("convert", root, tmp_path / "a.pack", "--resize", "300", *words).stderr
        assert "--resize 300: 6 of a sample of 6 images are smaller and are enlarged" in said
    called("convert", root, tmp_path / "b.pack", "--resize", "8")
    assert "are enlarged" in called("convert", tmp_path / "b.pack", tmp_path / "c.pack", "--resize", "9x9").stderr
    assert "are enlarged" not in called("convert", root, tmp_path / "d.pack", "--resize", "30").stderr


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_json_has_every_note_that_the_screen_gets(tmp_path: Path, dry: tuple[str, ...]) -> None:
    files: dict[str, bytes | str] = {f"{split}/a/{n}.png": image(n) for split in ("train", "val") for n in range(8)}
    files |= {f"{name.removesuffix('.png')}.txt": "1 2 3 4" for name in files}
    files |= {"train/b/0.png": image(1), "train/b/0_mask.png": image(1)}
    files |= {f"train/b/0{end}.txt": "1" for end in ("", "_mask")}
    root = write(tmp_path / "data", files)
    words = ("--folders", "split/class", "--sidecar", "t=.txt:text", "--resize", "300", *dry)
    said = called("convert", root, tmp_path / "a.pack", *words).stderr
    notes = json.loads(called("convert", root, tmp_path / "b.pack", *words, "--json").stdout)["notes"]
    for note in (
        f"{root}: image folder: 18 images",
        "are enlarged",
        "t: stored as they are",
    ):
        assert note in said
        assert sum(note in each for each in notes) == 1


def test_a_dry_run_says_that_its_size_is_of_all_parts(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {f"{n}.png": image(n) for n in range(4)})
    said = called("convert", root, tmp_path / "a.pack", "--part-size", "1", "--dry-run").stdout
    assert re.search(r"into 4 part\(s\), about [0-9.]+ \w+ in all; ", said)


def test_a_skipped_file_is_named_once_without_advice_that_was_taken(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    (root / "class0/0003.jpg").write_bytes(b"x")
    said = called("convert", root, tmp_path / "out.pack", "--on-error", "skip").stderr
    (line,) = [line for line in said.splitlines() if line.startswith("skipped")]
    assert line.count("0003.jpg") == 1
    assert "--on-error" not in line
    assert "leave it out" not in line
    assert line in called("info", tmp_path / "out.pack").output.replace(f"  {line}", line)


def test_info_counts_classes_and_splits(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    keys = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.jpg"))]
    (tmp_path / "train.txt").write_text("\n".join(keys[:4]))
    (tmp_path / "val.txt").write_text("\n".join(keys[4:]))
    lists = [f"--split={name}={tmp_path / name}.txt" for name in ("train", "val")]
    pack = tmp_path / "out.pack"
    assert called("convert", root, pack, *lists, "--codec", "image=jpeg:90").exit_code == 0
    said = called("info", pack).output
    assert re.search(r"^  label +class0 2, class1 2, class2 2$", said, re.MULTILINE)
    assert re.search(r"^  split +train 4, val 2$", said, re.MULTILINE)
    assert re.search(r"^    image .*\(H, W, 3\)$", said, re.MULTILINE)
    assert "source.splits=train+val" in said
    assert not re.search(r"[{}\[\]]|[0-9a-f]{64}", said.replace(manifest.read(pack).pack_id, ""))
    assert json.loads(called("info", pack, "--json").stdout)["counts"]["split"] == [["train", 4], ["val", 2]]
    (pack / "index/crc32.npy").unlink()
    damaged = called("info", pack)
    assert damaged.exit_code == 0
    assert "not counted" in damaged.stderr


def test_verify_says_what_repairs_and_what_quick_leaves_out(tmp_path: Path) -> None:
    pack = tmp_path / "out.pack"
    called("convert", photos(tmp_path / "in", 6), pack)
    quick = called("verify", pack, "--level", "quick").stdout
    assert quick == f"{pack}: ok (manifest, sizes and index only; no part was read)\n"
    (pack / "index/crc32.npy").unlink()
    assert "crc32.npy: missing; run packer index" in called("verify", pack).stderr
    with pytest.raises(CorruptPack, match="run packer index"):
        LMDBDataset(pack)[0]
    assert called("index", pack).exit_code == 0
    assert called("verify", pack).exit_code == 0


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a set, a pack of it, and what is neither."""
    place = tmp_path_factory.mktemp("places")
    photos(place / "in", 3)
    assert called("convert", place / "in", place / "a.pack").exit_code == 0
    write(place, {"file": "text", "nothing": "", "mixed/a.png": image(1), "mixed/c/b.png": image(2)})
    write(place, {"lacking/c/b.png": image(2)})
    (place / "lacking/d").mkdir()
    (place / "empty").mkdir()
    (place / "link").symlink_to("nowhere")
    return place


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("convert in", "packer convert: Missing argument"),
        ("verify", "packer verify: Missing argument 'PACK'"),
        ("info", "packer info: Missing argument 'PACK'"),
        ("synth", "packer synth: Missing argument 'SET'"),
        ("nothing", "No such command"),
        ("convrt", "Did you mean 'convert'?"),
        ("convert a b --workers 2", "Did you mean '--threads'?"),
        ("convert a b --format lmdb", "Did you mean '--to'?"),
        ("bench a --threads 2", "Did you mean '--workers'?"),
        ("convert in out.pack --to lmbd", "did you mean 'lmdb'?"),
        ("convert in out.pack --from imagenet", "imagenet"),
        ("convert in out.pack --from cornell", "Cornell grasps"),
        ("convert in out.pack --resize big", "expected N"),
        ("convert in out.pack --codec image", "FIELD=CODEC"),
        ("convert in out.pack --codec image=jpg", "unknown codec"),
        ("convert in out.pack --part-size lots", "expected a size"),
        ("convert in out.pack --depth-from pcd", "no option --depth-from"),
        ("convert in in/x.pack", "inside the source"),
        ("convert a.pack a.pack --overwrite", "a.pack: is the source itself"),
        ("convert absent out.pack", "does not exist"),
        ("convert file out.pack", "is a file; give the folder"),
        ("convert nothing out.pack", "the file is empty"),
        ("convert empty out.pack", "the folder is empty"),
        ("convert link out.pack", "is a broken link"),
        ("convert mixed out.pack", "--folders class"),
        ("convert lacking out.pack", "--allow-empty"),
        ("convert '' out.pack", "empty text"),  # what an unset variable of a shell leaves
        ("advise ''", "empty text"),
        ("bench ''", "empty text"),
        ("tune ''", "empty text"),
        ("verify nosuch", "'nosuch' does not exist"),
        ("info in", "not a pack"),
        ("stats in --output figures.csv", "ends in .json"),
    ],
)
def test_a_usage_error_is_a_line_that_says_what_to_do(
    places: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    monkeypatch.chdir(places)
    done = run_here(*shlex.split(words))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert said in done.stderr
    assert not (places / "out.pack").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_what_the_docs_say(shell: str) -> None:
    code = "import sys; sys.argv = ['packer']; from packer.cli import run; run()"
    asked = {**os.environ, "_PACKER_COMPLETE": f"{shell}_source"}
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("no bash here, which click asks for its version")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=asked)
    assert done.returncode == 0, done.stderr
    assert "_PACKER_COMPLETE=" in done.stdout
    assert f"{shell}_source" in (Path(__file__).parents[2] / "docs/commands.md").read_text()


def test_options_of_sources_are_declared_in_their_table_alone() -> None:
    for module in ("cli/convert.py", "cli/advise.py", "conversion/options.py", "conversion/convert.py"):
        text = (Path(packer.__file__).parent / module).read_text()
        for option in OPTIONS.values():
            assert f'"{option.flag}"' not in text and f"    {option.name}: " not in text, (module, option.name)


def test_the_format_follows_from_the_name_of_the_pack(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 3)
    for name, format in (("a.pth", "pth"), ("b.h5", "hdf5"), ("c.LMDB", "lmdb"), ("d.bmp", "bmp"), ("e.pack", "lmdb")):
        result = called("convert", root, tmp_path / name)
        assert result.exit_code == 0, result.output
        assert ("a pack is a folder" in result.stderr) == (name != "e.pack")
        assert manifest.read(tmp_path / name).format == format
    assert called("convert", root, tmp_path / "f.pack", "--to", "HDF5").exit_code == 0
    assert manifest.read(tmp_path / "f.pack").format == "hdf5"
    refused = called("convert", root, tmp_path / "g.h5", "--to", "lmdb")
    assert isinstance(refused.exception, InvalidRequest)
    assert "its suffix selects hdf5, --to selects lmdb" in str(refused.exception)
    assert not (tmp_path / "g.h5").exists()
    refused = called("convert", root, tmp_path / "g.zip")
    assert isinstance(refused.exception, InvalidRequest)
    assert "a pack is a folder, not a .zip file" in str(refused.exception)


def test_target_and_options_are_checked_before_the_source_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("the source was read")

    root = photos(tmp_path / "in", 3)
    write(tmp_path / "there", {"mine": "x"})
    monkeypatch.setattr("packer.sources._recognition.detect", read)
    target = tmp_path / "out.pack"
    for words, text in (
        ((tmp_path / "there",), "never replaced"),
        ((tmp_path / "there", "--overwrite"), "--overwrite replaces packs only"),
        ((root / "x.pack",), "inside the source"),
        ((target, "--resize", "0"), "expected sides of at least 1 px"),
        ((target, "--resize", "256,256"), "expected N"),
        ((target, "--codec", "image=jpg:90"), "did you mean 'jpeg'?"),
    ):
        refused = called("convert", root, *words)
        assert isinstance(refused.exception, InvalidRequest), (words, refused.exception)
        assert text in str(refused.exception)
        assert "\n" not in str(refused.exception)


def test_damaged_input_and_damaged_packs_exit_3(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    run_here("convert", root, tmp_path / "out.pack")
    (root / "class0/0000.jpg").write_bytes(b"")
    (root / "class2/0002.jpg").write_bytes(b"GIF89a")
    bad = run_here("convert", root, tmp_path / "other.pack")
    assert bad.returncode == 3
    assert "2 of 6 samples" in bad.stderr
    assert "class0/0000.jpg" in bad.stderr
    assert "class2/0002.jpg" in bad.stderr
    part = tmp_path / "out.pack/part-00000.lmdb"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    found = run_here("verify", tmp_path / "out.pack")
    assert found.returncode == 3
    assert "part-00000.lmdb" in found.stderr


def test_a_lock_that_another_process_holds_exits_5(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 3)
    partial = tmp_path / ".out.pack.partial"
    partial.mkdir()
    descriptor = os.open(partial, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        done = run_here("convert", root, tmp_path / "out.pack")
    finally:
        os.close(descriptor)
    assert done.returncode == 5
    assert "another process" in done.stderr
    assert run_here("convert", root, tmp_path / "out.pack").returncode == 0


def test_an_unexpected_error_shows_itself_whole_and_exits_1(tmp_path: Path) -> None:
    code = (
        "import packer.cli as c; from packer.cli import formats\n"
        "def broken(**_): raise RuntimeError('planted')\n"
        "formats.command.callback = broken\n"
        "import sys; sys.argv = ['packer', 'formats']; c.run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: planted" in done.stderr
    assert "please report" in done.stderr


def test_an_error_that_an_interrupt_left_behind_is_the_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        try:
            raise Interrupted(signal.SIGTERM)
        finally:
            raise ValueError("a file is half written")

    monkeypatch.setattr(main, "main", fail)
    assert cli._code() == 128 + signal.SIGTERM
    assert "SIGTERM" in capsys.readouterr().err


def test_sizes_are_read_and_shown() -> None:
    assert [parse_size(text) for text in ("0", "1k", "256M", "1.5GiB", "10")] == [0, 1024, 256 << 20, 3 << 29, 10]
    assert [size_text(size) for size in (0, 999, 1500, 2.5e6, 3.1e12)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "2.5 MB",
        "3.10 TB",
    ]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("columns", [0, 100])
def test_progress_on_a_terminal_is_a_bar(tmp_path: Path, columns: int) -> None:
    root = photos(tmp_path / "in", 300, height=100, width=100)
    # enlarged, because tqdm draws nothing more within 0.1 s of its first line
    command = [sys.executable, "-m", "packer", "convert", str(root), str(tmp_path / "out.pack"), "--resize", "1500"]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        shown += piece
    os.close(ours)
    assert child.wait() == 0
    assert b"/300 [" in shown
    assert b"MB/s" in shown


def test_progress_without_a_terminal_is_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("packer.files.progress_bar.time.monotonic", lambda: now[0])
    with ProgressBar() as bar:
        counter = ProgressCounter(1000, bar)
        now[0] += 2
        counter.add(100, 5_000_000)
        assert capsys.readouterr().err == ""
        now[0] += 8
        counter.add(100, 5_000_000)
    assert capsys.readouterr().err == "200/1000 samples, 20 samples/s, 1.0 MB/s, 40 s left\n"
    with ProgressBar() as bar:
        counter = ProgressCounter(1000, bar)
        counter.add_resumed(600, 30_000_000)
        now[0] += 10
        counter.add(100, 5_000_000)
    assert capsys.readouterr().err == "700/1000 samples, 10 samples/s, 0.5 MB/s, 30 s left\n"
    with ProgressBar(quiet=True) as bar:
        counter = ProgressCounter(10, bar)
        now[0] += 60
        counter.add(5, 10)
    assert capsys.readouterr().err == ""


@pytest.mark.one_in(2)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("buffered", [(), ("-u",)])
def test_an_output_on_a_full_disk_is_an_error_of_the_disk(buffered: tuple[str, ...]) -> None:
    command = [sys.executable, *buffered, "-m", "packer", "formats"]
    given = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=given)
    assert done.returncode == 4
    assert done.stderr.startswith("packer: the output: No space left on device")
    assert done.stderr.count("\n") == 1


def test_verify_shows_the_first_problems_and_how_many_there_are(tmp_path: Path) -> None:
    source_trees.photos(tmp_path / "in", 30)
    source_trees.photos(tmp_path / "other", 2)
    assert run_here("convert", tmp_path / "in", tmp_path / "a.pack").returncode == 0
    done = run_here("verify", tmp_path / "a.pack", "--source", tmp_path / "other")
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert len(lines) == 22
    assert re.fullmatch(r"\.\.\. and \d+ more; --json lists all", lines[20])
    machine = run_here("verify", tmp_path / "a.pack", "--source", tmp_path / "other", "--json")
    assert len(json.loads(machine.stdout)["problems"]) >= 28


def test_every_command_says_its_group() -> None:
    places = [registry.load(name).PLACE for name in registry.names()]
    assert len(set(places)) == len(places)


def test_every_command_takes_a_url_or_says_what_to_do(object_server: ObjectServer, tmp_path: Path) -> None:
    """Of a pack that is not there: a command that asks the store names it, every other one says what to type."""
    url, place = "s3://b/missing.pack", tmp_path / "new"
    further = {"extract": [place], "convert": [place], "view": ["-o", tmp_path / "sheet.png"]}
    for name in registry.names():
        command = main.get_command(click.Context(main), name)
        assert command is not None
        first = next((option for option in command.params if isinstance(option, click.Argument)), None)
        if first is None or isinstance(first.type, click.Choice | RegistryName):
            continue  # it reads no pack
        result = called(name, url, *further.get(name, []))
        if isinstance(result.exception, SystemExit):
            assert result.exit_code == 2
            shown = result.stderr
        else:
            assert isinstance(result.exception, InvalidRequest), (name, result.exception)
            shown = str(result.exception)
        said = r"s3://b/missing\.pack: (not a pack|nothing is there|expected a place on this machine)"
        assert re.search(said, shown), (name, shown)
        assert not place.exists()


def test_the_help_of_convert_fits_a_screen_and_has_all_options_of_a_source() -> None:
    shown = help_of("convert", "--help")
    assert len(shown.splitlines()) <= 60
    general = {option.flag for option in OPTIONS.values() if option.help_for("")}
    assert general == {option.flag for option in OPTIONS.values() if re.search(rf"  {option.flag}\b", shown)}
    for name in sources.registry.names():
        shown = help_of("convert", "--from", name, "--help")
        assert shown == help_of("convert", "--help", "-f", name)
        listed = called("formats", name).stdout
        for option in OPTIONS.values():
            assert bool(option.help_for(name)) == (f"  {option.flag} " in listed)
            assert not option.help_for(name) or re.search(rf"  {option.flag}\b", shown)


def help_of(*words: str) -> str:
    return CliRunner().invoke(main, words, terminal_width=80).output


def test_quiet_prints_errors_and_nothing_else(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 3)
    done = called("convert", root, tmp_path / "out.pack", "-q")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert isinstance(called("convert", root, tmp_path / "out.pack", "-q").exception, PackExists)


def test_a_terminal_shows_the_advice_of_an_error_on_its_own_line() -> None:
    found = cli._for_terminal("packer: a; b: expected c; use d", 20)
    assert found == "packer: a; b:\n  expected c\nhint: use d"
    assert cli._for_terminal("packer: a", 20) == "packer: a"
