"""packer view: the command, over every format."""

from pathlib import Path

from tests.support.array_packs import IMAGE, decoded, displayed, plain
from tests.support.built_packs import flip
from tests.support.command_line import called, run_here
from tests.support.conversions import packed
from tests.support.source_trees import jacquard


def test_the_command_writes_a_image_or_a_page(tmp_path: Path) -> None:
    packed(jacquard(tmp_path / "in"), tmp_path / "set.pack")
    done = run_here("view", tmp_path / "set.pack", "-n", 2, "--zoom", "-o", tmp_path / "a.png")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'a.png'}: set.pack: 2 of 4 samples, close-ups, format lmdb\n"
    assert decoded((tmp_path / "a.png").read_bytes()).shape[2] == 3
    keys = ("--key", "0_" + "1d0a4c5e6b7f8899aabbccddeeff0011")
    done = run_here(
        "view", tmp_path / "set.pack", *keys, "--fields", "rgb,grasps", "--size", 64, "-o", tmp_path / "a.html"
    )
    assert "1 of 4 samples" in done.stdout
    assert (tmp_path / "a.html").read_text().count("data:image/jpeg") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.png", "in", "set.pack"]


def test_the_same_command_gives_the_same_bytes(tmp_path: Path) -> None:
    pack = displayed(tmp_path / "pack", [IMAGE], [{"image": plain(9, 9, (number, 0, 0))} for number in range(40)])
    for name in ("a.png", "b.png"):
        assert called("view", pack, "-n", 5, "--seed", 3, "-o", tmp_path / name).exit_code == 0
    assert called("view", pack, "-n", 5, "--seed", 4, "-o", tmp_path / "c.png").exit_code == 0
    a, b, c = ((tmp_path / name).read_bytes() for name in ("a.png", "b.png", "c.png"))
    assert a == b != c


def test_usage_errors_say_what_to_do(tmp_path: Path) -> None:
    pack = displayed(tmp_path / "pack", [IMAGE], [{"image": plain(9, 9)}])
    for words, code, text in (
        ((pack, "-n", 3), 2, "'-n' / '--samples' is for a sheet, with -o FILE"),
        ((pack, "--zoom"), 2, "'--zoom' is for a sheet"),
        ((pack, "-o", tmp_path / "a.png", "--port", 8000), 2, "'--port' is for the page"),
        ((pack, pack, "-o", tmp_path / "a.png"), 2, "is for the page in the browser, without -o"),
        ((pack, "--port", 80), 2, "at least 1024"),
        ((pack, "--scratch", tmp_path), 2, "--scratch is for a remote pack"),
        ((pack, "-o", tmp_path / "a.jpg"), 2, "expected a name that ends in .png or .html"),
        ((pack, "-o", tmp_path / "a.png", "-n", 0), 2, "at least 1"),
        ((pack, "-o", tmp_path / "a.png", "--key", "no"), 2, "no sample with key 'no'"),
        ((pack, "-o", tmp_path / "a.png", "--fields", "rgb"), 2, "no field 'rgb'; there are: key, image"),
        ((tmp_path, "-o", tmp_path / "a.png"), 2, "not a pack"),
        ((pack, "-o", tmp_path / "no/a.png"), 4, "No such file or directory"),
        ((pack, "-o", tmp_path / "folder.png"), 2, "found a folder; choose another name"),
    ):
        (tmp_path / "folder.png").mkdir(exist_ok=True)
        done = run_here("view", *words)
        assert (done.returncode, done.stdout) == (code, ""), (words, done.stderr)
        assert text in done.stderr
    assert not (tmp_path / "a.png").exists()


def test_a_name_that_is_no_text_is_shown_as_escapes(tmp_path: Path) -> None:
    pack = displayed(Path(f"{tmp_path}/p\udcff\x1b"), [IMAGE], [{"image": plain(9, 9)}], format="pth")
    for words in (("view", pack, "-o", tmp_path / "a.html"), ("stats", pack)):
        done = run_here(*words)
        assert done.returncode == 0, done.stderr
        assert r"p\udcff\x1b" in done.stdout
    assert r"p\udcff\x1b: 1 of 1 samples" in (tmp_path / "a.html").read_text()


def test_damage_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    pack = displayed(tmp_path / "pack", [IMAGE], [{"image": plain(40, 40)}] * 3, format="pth")
    part = pack / "part-00000.pth"
    flip(part, part.read_bytes().index(bytes(plain(40, 40))) + 7)
    done = run_here("view", pack, "-o", tmp_path / "a.png")
    assert done.returncode == 3
    assert "damaged record" in done.stderr
    assert "field 'image'" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pack"]
