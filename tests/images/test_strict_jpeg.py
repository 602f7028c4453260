"""JPEG through every library: one outcome for one file, and no memory that nobody wrote."""

import threading
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import simplejpeg
import turbojpeg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.errors import DamagedImage, MissingPackage
from packer.images import DecodeOptions, decode, describe, sniff, validate
from packer.images.backends import strict_jpeg
from packer.images.backends import turbojpeg as turbojpeg_backend
from packer.system.parallel import ordered_map
from tests.support import image_files
from tests.support.jpeg_libraries import EACH_LIBRARY, LIBRARIES

JPEGS = image_files.jpegs()


@pytest.fixture(params=[*EACH_LIBRARY, "opencv"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each library as if it were the only one; what OpenCV decodes is checked by either."""
    if request.param != "opencv":
        monkeypatch.setattr(strict_jpeg, "library", lambda: LIBRARIES[request.param])
    yield "opencv" if request.param == "opencv" else "turbojpeg"


@pytest.fixture
def choosing_again() -> Iterator[None]:
    """The library is chosen anew, in the test and after it."""
    strict_jpeg.library.cache_clear()
    yield
    strict_jpeg.library.cache_clear()


def reference(file: bytes) -> image_files.Pixels:
    """Straight from simplejpeg, which converts CMYK too."""
    return simplejpeg.decode_jpeg(file)


@pytest.mark.parametrize("name", JPEGS)
def test_an_intact_file_decodes_whatever_follows_it(decoder: str, name: str) -> None:
    file, expected = JPEGS[name], reference(JPEGS[name])
    for tail in (b"", bytes(100), image_files.jpeg(image_files.colors(9)), b"junk"):
        assert np.array_equal(decode(file + tail, "image", options=DecodeOptions(decoder=decoder)), expected)
        assert validate(file + tail, "image") == validate(file + tail, "image", full=False) == sniff(file + tail)


@pytest.mark.parametrize("name", JPEGS)
def test_a_file_without_its_end_marker_decodes(decoder: str, name: str) -> None:
    file = JPEGS[name][:-2]
    assert np.array_equal(decode(file, "image", options=DecodeOptions(decoder=decoder)), reference(JPEGS[name]))
    assert validate(file, "image") == validate(file, "image", full=False) == sniff(JPEGS[name])


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", JPEGS)
@pytest.mark.parametrize("percent", [0, 1, 3, 10, 20, 35, 50, 65, 80, 90, 95, 98, 99])
def test_a_cut_file_is_damaged_for_everyone(decoder: str, name: str, percent: int) -> None:
    file = JPEGS[name]
    cut = file[: min(len(file) * percent // 100, len(file) - 40)]
    for damaged in (cut, cut + bytes(100), cut + image_files.EOI):
        with pytest.raises(DamagedImage):
            decode(damaged, "image", options=DecodeOptions(decoder=decoder))
        with pytest.raises(DamagedImage):
            validate(damaged, "image")
    with pytest.raises(DamagedImage):
        validate(cut, "image", full=False)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", [name for name in JPEGS if "progressive" not in name])
def test_a_cut_file_filled_up_with_zeros_is_damaged(decoder: str, name: str) -> None:
    file = JPEGS[name]
    for zeros in range(2, 260):
        with pytest.raises(DamagedImage):
            decode(file[:-150] + bytes(zeros), "image", options=DecodeOptions(decoder=decoder))


def test_noise_in_the_place_of_the_end_marker_is_damage(decoder: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, 5000, np.uint8).tobytes()
    for damaged in (noise, image_files.jpeg()[:-2] + noise):
        with pytest.raises(DamagedImage):
            decode(damaged, "image", options=DecodeOptions(decoder=decoder))


@pytest.mark.parametrize("kind", ["image", "mask", "depth"])
def test_a_gray_file_is_any_kind(decoder: str, kind: str) -> None:
    pixels = decode(image_files.jpeg(image_files.grays()), kind, options=DecodeOptions(decoder=decoder))
    gray = simplejpeg.decode_jpeg(image_files.jpeg(image_files.grays()), "GRAY")
    assert np.array_equal(pixels, np.repeat(gray, 3, axis=2) if kind == "image" else gray[:, :, 0])
    assert pixels.flags.c_contiguous


def test_no_warning_of_a_library_reaches_the_user_and_nothing_is_printed(
    decoder: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = image_files.jpeg()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decode(file[:-2], "image", options=DecodeOptions(decoder=decoder))
        with pytest.raises(DamagedImage, match="cannot decode JPEG"):
            decode(file[: len(file) // 2], "image", options=DecodeOptions(decoder=decoder))
    assert not caught
    changed = bytearray(image_files.jpeg())
    changed[-100] ^= 0xFF
    for damaged in (bytes(changed), bytes(changed[: len(changed) // 2]), bytes(changed[:-2])):
        try:
            decode(damaged, "image", options=DecodeOptions(decoder=decoder))
        except DamagedImage:
            continue
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("fraction", [0.3, 0.6, 0.95])
def test_out_holds_zeros_after_a_failure(decoder: str, fraction: float) -> None:
    file = image_files.jpeg()
    start = sniff(file).data_at
    out = np.full(image_files.colors().shape, 7, np.uint8)
    with pytest.raises(DamagedImage):
        decode(
            file[: start + int((len(file) - start) * fraction)],
            "image",
            options=DecodeOptions(decoder=decoder),
            out=out,
        )
    assert (out == (7 if decoder == "opencv" else 0)).all()


def test_threads_decode_as_one_does(decoder: str) -> None:
    files = [image_files.jpeg(image_files.colors(seed), sampling=("444", "420")[seed % 2]) for seed in range(8)]
    files.append(files[0][:-2])
    expected = [decode(file, "image", options=DecodeOptions(decoder=decoder)) for file in files]
    start = threading.Barrier(16)

    def work(thread: int) -> bool:
        start.wait()
        places = [(thread + step) % len(files) for step in range(60)]
        return all(
            np.array_equal(decode(files[at], "image", options=DecodeOptions(decoder=decoder)), expected[at])
            for at in places
        )

    assert all(ordered_map(work, range(16), threads=16, window=16))


def test_pyturbojpeg_is_not_used_where_it_holds_no_functions(
    monkeypatch: pytest.MonkeyPatch, choosing_again: None
) -> None:
    monkeypatch.setattr(turbojpeg.TurboJPEG, "__init__", lambda self: None)
    reasons = [found for found in strict_jpeg.attempts() if isinstance(found, str)]
    assert reasons == [
        f"PyTurboJPEG {turbojpeg.__version__} does not hold the function tjDecompress2, expected release 1.8"
    ]
    assert describe("turbojpeg").startswith("simplejpeg ")


def test_without_the_system_library_simplejpeg_steps_in(monkeypatch: pytest.MonkeyPatch, choosing_again: None) -> None:
    def absent(_: object) -> None:
        raise RuntimeError("Unable to locate turbojpeg library automatically")

    monkeypatch.setattr(turbojpeg.TurboJPEG, "__init__", absent)
    assert describe().startswith(f"simplejpeg {simplejpeg.__version__}, libjpeg-turbo ")
    assert np.array_equal(decode(JPEGS["progressive"], "image"), reference(JPEGS["progressive"]))


def test_a_library_that_decodes_wrong_pixels_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, choosing_again: None
) -> None:
    monkeypatch.setattr(turbojpeg_backend.PyTurboJPEG, "decode", lambda self, buffer, pixels: None)
    assert describe().startswith("simplejpeg ")


def test_without_any_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, choosing_again: None
) -> None:
    def absent(module: str, needed_by: str) -> None:
        raise MissingPackage(f"{needed_by} needs the package {module!r}")

    monkeypatch.setattr(strict_jpeg, "import_or_explain", absent)
    with pytest.raises(MissingPackage, match="no JPEG library.*simplejpeg"):
        decode(image_files.jpeg(), "image")


def test_the_description_names_package_and_library() -> None:
    assert describe("opencv").startswith("OpenCV ")
    for name, library in LIBRARIES.items():
        package, _, version = strict_jpeg.describe(library).partition(", libjpeg-turbo ")
        assert package.startswith(f"{name} ")
        assert version[:1].isdigit() or (library.binary.startswith("_pylibjxl") and not version)  # which does not tell


def fails(library: strict_jpeg.JPEGLibrary, file: bytes) -> tuple[bool, bool]:
    """Whether the full decode raises, and whether the quick check does."""
    found = sniff(file)
    results = []
    pixels = np.zeros((found.height, found.width, 3), np.uint8)
    for attempt in (lambda: library.decode(file, pixels), lambda: library.check(file, found)):
        try:
            attempt()
            results.append(False)
        except DamagedImage:
            results.append(True)
    return results[0], results[1]


MUTATED = st.tuples(st.sampled_from([name for name in JPEGS if name != "cmyk"]), st.data())


@given(MUTATED)
def test_the_quick_check_raises_exactly_when_the_full_decode_does(drawn: tuple[str, st.DataObject]) -> None:
    quick_check_equals_full_decode(*drawn)


@pytest.mark.full
@settings(max_examples=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(MUTATED)
def test_the_quick_check_raises_exactly_when_the_full_decode_does_20_000_times(
    drawn: tuple[str, st.DataObject],
) -> None:
    quick_check_equals_full_decode(*drawn)


def quick_check_equals_full_decode(name: str, data: st.DataObject) -> None:
    file = bytearray(JPEGS[name])
    action = data.draw(st.sampled_from(["flip", "cut", "insert", "delete", "marker"]))
    at = data.draw(st.integers(160, len(file) - 1))
    if action == "flip":
        file[at] ^= 1 << data.draw(st.integers(0, 7))
    elif action == "cut":
        del file[at:]
    elif action == "insert":
        file[at:at] = data.draw(st.binary(min_size=1, max_size=4))
    elif action == "delete":
        del file[at : at + data.draw(st.integers(1, 30))]
    else:
        file[at : at + 2] = data.draw(st.sampled_from([image_files.EOI, b"\xff\xd0", b"\xff\xda", b"\xff\x00"]))
    try:
        found = sniff(bytes(file))
    except DamagedImage:
        return
    if found.height * found.width > 1_000_000:  # a flip in the size: right, but slow
        return
    outcomes = [fails(library, bytes(file)) for library in LIBRARIES.values()]
    assert all(full == quick for full, quick in outcomes)
    assert len(set(outcomes)) == 1


@given(st.sampled_from(list(JPEGS)), st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_damage_or_the_same_pixels_everywhere(name: str, place: int, bit: int) -> None:
    file = bytearray(JPEGS[name])
    file[2 + place % (len(file) - 2)] ^= 1 << bit
    results = []
    for decoder in ("turbojpeg", "opencv"):
        try:
            if sniff(bytes(file)).height > 2000 or sniff(bytes(file)).width > 2000:
                return
            results.append(decode(bytes(file), "image", options=DecodeOptions(decoder=decoder)))
        except DamagedImage:
            results.append(None)
    assert (results[0] is None) == (results[1] is None)
    assert results[0] is None or np.array_equal(results[0], results[1])
