"""Draws the page of packer view into images of the documentation.

python -m scripts.page_images docs/images

The packs are synthetic. It needs playwright and Chromium.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

import cv2
import numpy as np
from playwright.sync_api import sync_playwright

_SIZE = {"width": 1200, "height": 640}
_QUALITY = 90
_GRID = {"where": "any(boxes.area >= 3000) and split == 'train'", "sort": "len(boxes)", "desc": 1}
_SAMPLE = {"view": "sample", "row": 7, "at": 7, "show": "trained", "geometry": "CenterCrop(160)"}
_COMPARISON = {"view": "compare", "row": 2, "pair": 2}


def run(*words: str) -> None:
    """Calls packer."""
    subprocess.run([sys.executable, "-m", "packer", *words], check=True)


def draw(packs: Sequence[str], state: dict[str, object], theme: str, target: Path) -> None:
    """Writes the page of packs in a state as WebP."""
    command = [sys.executable, "-m", "packer", "view", *packs, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(viewport=_SIZE, color_scheme=theme).new_page()
        page.goto(f"{url}#{urlencode(state)}")
        page.wait_for_timeout(5000)  # until all images are drawn
        pixels = cv2.imdecode(np.frombuffer(page.screenshot(), np.uint8), cv2.IMREAD_COLOR)
        target.write_bytes(cv2.imencode(".webp", pixels, [cv2.IMWRITE_WEBP_QUALITY, _QUALITY])[1].tobytes())
        browser.close()
        server.terminate()


def main() -> None:
    """Draws all images."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        voc, jacquard = f"{folder}/voc", f"{folder}/jacquard"
        objects, smaller, grasps = f"{folder}/objects.pack", f"{folder}/objects-small.pack", f"{folder}/grasps.pack"
        run("synth", "voc", voc, "--samples", "300")
        run("synth", "jacquard", jacquard, "--samples", "40")
        run("convert", voc, objects, "-q")
        run("convert", voc, smaller, "--resize", "128", "--codec", "image=jpeg:95", "-q")
        run("convert", jacquard, grasps, "-q")
        draw([objects], _GRID, "light", target / "view-grid.webp")
        draw([grasps], _SAMPLE, "dark", target / "view-sample.webp")
        draw([objects, smaller], _COMPARISON, "light", target / "view-compare.webp")


if __name__ == "__main__":
    main()
