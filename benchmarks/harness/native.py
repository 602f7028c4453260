"""C libraries that a peer expects of the system, unpacked into a private folder: nothing is installed.

Only for systems with apt. `apt-get install --simulate` says what is missing; the files are fetched and unpacked with
dpkg, which needs no rights and changes nothing outside the folder.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

STAMP = "complete"


class NotAvailable(Exception):
    """Why a library cannot be had here, in one line."""


def unpack(packages: Sequence[str], folder: Path) -> list[Path]:
    """Unpack what `packages` need and this system lacks; returns the folders that hold shared libraries.

    packages: names of Debian packages; the -dev ones, whose names hold over releases, bring the libraries themselves.
    Raises NotAvailable where apt does not know them or cannot fetch them.
    """
    if not (folder / STAMP).exists():
        folder.mkdir(parents=True, exist_ok=True)
        plan = _run(["apt-get", "install", "--simulate", "--no-install-recommends", *packages])
        names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
        if names:
            _run(["apt-get", "download", *names], folder)
        for archive in sorted(folder.glob("*.deb")):
            _run(["dpkg", "-x", archive.name, "."], folder)
            archive.unlink()
        _mend_links(folder)
        (folder / STAMP).touch()
    return sorted({path.parent for path in folder.glob("usr/lib/**/*.so*") if path.is_file()})


def _mend_links(folder: Path) -> None:
    """A -dev package links to the library beside it; where the system has that already, link to the system's."""
    for link in folder.rglob("*.so"):
        if link.is_symlink() and not link.exists():
            there = Path("/") / link.parent.relative_to(folder) / link.readlink()
            if there.exists():
                link.unlink()
                link.symlink_to(there)


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NotAvailable(f"{command[0]} is not on this system; install its libraries by hand") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotAvailable(f"{' '.join(command[:2])}: {last}; apt-get update may help")
    return done.stdout
