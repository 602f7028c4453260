"""The reference pages follow the code, and the site builds without a dead link."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.repository import ROOT, loaded


@pytest.fixture(scope="module")
def site() -> ModuleType:
    module = loaded("scripts/docs.py")
    pages = list(module.python_pages())  # reads all of packer, which takes seconds
    module.python_pages = lambda: pages
    return module


def test_the_reference_pages_are_those_of_this_code(site: ModuleType) -> None:
    wanted = site.pages()
    stale = [
        str(path.relative_to(ROOT)) for path, text in wanted.items() if not path.exists() or path.read_text() != text
    ]
    assert not stale, f"run scripts/docs write: {stale}"
    assert set(site.REFERENCE.rglob("*.md")) == set(wanted)


def test_the_site_builds_without_a_dead_link(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/docs.py", "build"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((ROOT / ".site").rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        assert "https://fonts." not in page.read_text(), f"{page}: fetches fonts from elsewhere"
    listed = re.findall(r"\]\((.*?)/?\)", (ROOT / ".site/llms.txt").read_text())
    assert len(listed) > 40
    for name in listed:
        page = ROOT / ".site" / name.removesuffix("index")
        assert (page / "index.html").exists(), f"llms.txt names {name}"


def test_pages_that_messages_name_exist() -> None:
    """A message or --help names a page below `errors.DOCS` only, so that one line changes the address of all."""
    for path in sorted((ROOT / "packer").rglob("*.py")):
        text = path.read_text()
        if "docs/" not in text and "{DOCS}" not in text:
            continue  # parsing all takes seconds
        for name in re.findall(r"\{DOCS\}/([\w/-]+\.md)", text):
            assert (ROOT / "docs" / name).exists(), f"{path.name} names {name}"
        strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
        for found in strings:
            is_message = isinstance(found, str) and "\n" not in found
            assert not (is_message and "docs/" in found), f"{path.name}: write DOCS: {found}"


def test_every_argument_of_a_public_name_is_documented(site: ModuleType) -> None:
    missing = []
    for name, page in site.python_pages():
        for title, signature, text in re.findall(
            r"^###? (\S+)\n\n```py\n(.*?)\n```\n(.*?)(?=^###? |\Z)", page, re.DOTALL | re.MULTILINE
        ):
            (call,) = ast.parse(f"def shown({signature.partition('(')[2]}: ...").body
            assert isinstance(call, ast.FunctionDef)
            if re.search(r"methods and attributes: see \[|arguments (and the errors )?are those of `", text):
                continue
            arguments = [each.arg for each in (*call.args.posonlyargs, *call.args.args, *call.args.kwonlyargs)]
            missing += [f"{name}: {title}({each})" for each in arguments if not re.search(rf"\b{each}\b", text)]
    assert not missing, missing
