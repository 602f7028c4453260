"""Site of the documentation: writes the reference and the notebooks, and builds or serves the site with Zensical."""

import argparse
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import griffe
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
TUTORIALS = DOCS / "tutorials"
_GENERATED = "<!-- Written by scripts/docs write. Do not edit. -->\n\n"
# modules with public names, in the order of the navigation
_MODULES = ("packer", "packer.datasets", "packer.geometry", "packer.grasp", "packer.loading", "packer.dali")


def command_pages() -> Iterator[tuple[str, str]]:
    """Yields the name and the text of the page of each command, from the declarations of click."""
    from packer.cli import main, registry

    for name in registry.names():
        context = click.Context(main, info_name="packer")
        command = main.get_command(context, name)
        assert command is not None
        usage = " ".join(["packer", name, *command.collect_usage_pieces(click.Context(command))])
        lines = [f"# packer {name}", "", inspect.cleandoc(command.help or ""), "", "```text", usage, "```", ""]
        options = [each for each in command.params if isinstance(each, click.Option)]  # arguments are in the usage
        records = [each.get_help_record(click.Context(command)) for each in options]
        rows = [record for record in records if record is not None]
        if rows:
            lines += ["| option | meaning |", "|---|---|"]
            lines += [f"| `{_cell(flags)}` | {_cell(text)} |" for flags, text in rows]
        yield f"commands/{name}.md", "\n".join(lines) + "\n"


def python_pages() -> Iterator[tuple[str, str]]:
    """Yields the name and the text of the page of each public module, from its docstrings in Google style."""
    package = griffe.load("packer", search_paths=[ROOT], docstring_parser="google", resolve_aliases=True)
    for dotted in _MODULES:
        module = package if dotted == "packer" else package[dotted.partition(".")[2]]
        lines = [f"# {dotted}", "", _sections(module), ""]
        names = [str(each) for each in module.exports or ()]
        names += ["open"] if dotted == "packer" else []  # public, but not for star imports
        for name in names:
            member = module[name]
            if member.is_module or member.is_attribute:
                continue
            if dotted == "packer" and any(
                name in (package[each.partition(".")[2]].exports or ()) for each in _MODULES[1:]
            ):
                home = next(each for each in _MODULES[1:] if name in (package[each.partition(".")[2]].exports or ()))
                lines += [f"## {name}", "", f"See [{home}.{name}]({home}.md#{name.lower()}).", ""]
                continue
            lines += [f"## {name}", "", *_signature(f"{dotted}.{name}", member), "", _sections(member), ""]
            if member.is_class:
                own = member.members.get("__init__")
                parents = [str(each).rpartition(".")[2] for each in member.bases]
                base = parents[0] if parents else ""
                if own is not None:
                    lines += [_sections(own), ""]
                elif base in names:
                    lines += [f"Arguments, methods and attributes: see [{base}](#{base.lower()}).", ""]
                described = {each for parent in parents if parent in module.members for each in module[parent].members}
                for inner in member.members.values():
                    if inner.name in described:
                        continue
                    if inner.is_function and not inner.name.startswith("_") and inner.docstring:
                        lines += [
                            f"### {name}.{inner.name}",
                            "",
                            *_signature(inner.name, inner),
                            "",
                            _sections(inner),
                            "",
                        ]
                    elif inner.is_attribute and not inner.name.startswith("_") and inner.docstring:
                        lines += [f"### {name}.{inner.name}", "", _sections(inner), ""]
        yield f"python/{dotted}.md", re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def error_page() -> str:
    """Returns the page of the errors: each class with its exit code and meaning."""
    from packer import errors

    classes = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.PackerError)]
    rows = sorted(classes, key=lambda each: (each.exit_code, each.__name__))
    lines = [
        "# Errors and exit codes",
        "",
        "Each failure is a subclass of `packer.errors.PackerError`. The command line exits with the code of the class.",
        "For messages and what to do, see [troubleshooting](../check/troubleshooting.md#errors).",
        "",
        "| exit code | class | meaning |",
        "|---|---|---|",
        *(
            f"| {each.exit_code} | `{each.__name__}` | {_cell((each.__doc__ or '').partition(chr(10) * 2)[0])} |"
            for each in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Returns text on one line that a cell of a table can contain."""
    return " ".join(text.split()).replace("|", "\\|")


def _signature(title: str, member: griffe.Object | griffe.Alias) -> list[str]:
    """Returns the signature of a function or class, one parameter per line."""
    function = member.members.get("__init__", member) if member.is_class else member
    parameters = getattr(function, "parameters", None)
    if parameters is None:
        return []
    lines, keyword_only = [], False
    for each in parameters:
        if each.name in ("self", "cls"):
            continue
        kind = str(each.kind.value if each.kind else "")
        if kind == "keyword-only" and not keyword_only:
            lines.append("    *,")
        keyword_only = keyword_only or kind in ("keyword-only", "variadic positional")
        star = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        default = f" = {each.default}" if each.default is not None and not star else ""
        annotation = f": {each.annotation}" if each.annotation is not None else ""
        lines.append(f"    {star}{each.name}{annotation}{default},")
    returns = getattr(function, "returns", None)
    arrow = f" -> {returns}" if returns is not None and not member.is_class else ""
    return (
        ["```py", f"{title}({', '.join(line.strip(' ,') for line in lines)}){arrow}", "```"]
        if len(lines) < 3
        else [
            "```py",
            f"{title}(",
            *lines,
            f"){arrow}",
            "```",
        ]
    )


def _sections(member: griffe.Object | griffe.Alias) -> str:
    """Returns the docstring as Markdown: text, then a list for each of Args, Returns, Yields, Raises and Attributes."""
    if member.docstring is None:
        return ""
    lines: list[str] = []
    for section in member.docstring.parsed:
        kind = section.kind.value
        if kind == "text":
            lines += [section.value, ""]
        elif kind in ("parameters", "attributes", "raises", "returns", "yields", "other parameters"):
            title = {"parameters": "Args", "other parameters": "Keywords"}.get(kind, kind.capitalize())
            lines += [f"**{title}**", ""]
            for each in section.value:
                named = getattr(each, "name", "") or (str(each.annotation) if kind == "raises" else "")
                lines.append(f"- `{named}`: {_text(each.description)}" if named else f"- {_text(each.description)}")
            lines.append("")
        elif kind == "examples":
            lines += ["**Example**", "", *("```python\n" + text + "\n```" for _, text in section.value), ""]
        elif kind == "admonition":
            lines += [f"**{section.title}**", "", section.value.description, ""]
    return "\n".join(lines).rstrip()


def _text(description: str) -> str:
    """Returns a description on one line."""
    return " ".join(description.split())


def home_pages() -> dict[Path, str]:
    """Returns the pages that the site copies from the top of the repository, with their links changed."""
    names = {
        "README.md": "index.md",
        "CHANGELOG.md": "project/changelog.md",
        "CONTRIBUTING.md": "project/contributing.md",
    }
    names["SECURITY.md"] = "project/security.md"
    found = {}
    for name, page in names.items():
        up = "../" * page.count("/")
        text = (ROOT / name).read_text(encoding="utf-8")
        text = re.sub(r"\]\(docs/", f"]({up}", text)
        for other, target in names.items():
            text = text.replace(f"]({other}", f"]({up}{target}")
        found[DOCS / page] = text
    return found


def llms_text() -> str:
    """Returns llms.txt: each page of the navigation with its first sentence, for programs."""
    config = _Config((ROOT / "mkdocs.yml").read_text(encoding="utf-8")).get_single_data()
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}"]
    for section in config["nav"]:
        ((title, entries),) = section.items()
        lines += ["", f"## {title}", ""]
        lines += [_llms_line(name) for name in _page_names(entries)]
    return "\n".join(lines) + "\n"


class _Config(yaml.SafeLoader):
    """A loader that ignores the tags of mkdocs.yml that name Python objects."""


_Config.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def _page_names(entries: str | list[Any]) -> Iterator[str]:
    """Yields the pages of one entry of the navigation; a folder stands for all of its pages."""
    if isinstance(entries, str):
        folder = DOCS / entries
        found = sorted(folder.rglob("*.md")) if folder.is_dir() else [folder]
        yield from (path.relative_to(DOCS).as_posix() for path in found)
        return
    for entry in entries:
        yield from _page_names(next(iter(entry.values())) if isinstance(entry, dict) else entry)


def _llms_line(name: str) -> str:
    """Returns the line of llms.txt for a page: its title as a link, and the first sentence of its text."""
    text = (DOCS / name).read_text(encoding="utf-8").removeprefix(_GENERATED)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    title = re.search(r"^# (.+)", text, re.MULTILINE)
    first = re.search(r"^(?![#\[`|>!*<-])\S.*(?:\n(?!\n).+)*", text, re.MULTILINE)
    plain = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first[0]).split()) if first else ""
    sentence = re.split(r"(?<=[.!?:]) ", plain)[0]
    return f"- [{title[1] if title else name}]({name.removesuffix('.md')}/): {sentence}".rstrip(": ")


def pages() -> dict[Path, str]:
    """Returns the path and the text of every generated page."""
    found = {**dict(command_pages()), **dict(python_pages()), "errors.md": error_page()}
    return {REFERENCE / name: _GENERATED + text for name, text in found.items()}


def notebooks() -> dict[Path, str]:
    """Returns the path and the text of the notebook of each tutorial."""
    return {path.with_suffix(".ipynb"): _notebook(path.read_text("utf-8")) for path in sorted(TUTORIALS.glob("*.md"))}


def _notebook(page: str) -> str:
    """Returns a page as a notebook: text, Python and commands become cells; the output of a cell is left out."""
    cells: list[dict[str, Any]] = []
    for part in re.split(r"^(```\w+\n(?:.*?\n)?```)$", page, flags=re.DOTALL | re.MULTILINE):
        kind, code = re.sub(r"\n```$", "", part).split("\n", 1) if part.startswith("```") else ("", part.strip())
        if kind == "```text" or not code:
            continue
        cell: dict[str, Any] = {"cell_type": "code" if kind else "markdown", "id": f"cell-{len(cells)}", "metadata": {}}
        if kind:
            cell |= {"execution_count": None, "outputs": []}
        text = re.sub("^", "!", code, flags=re.MULTILINE) if kind == "```sh" else code
        cells.append({**cell, "source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    found = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def write() -> None:
    """Writes the generated pages and removes those that nothing generates any more."""
    wanted = pages()
    for path in REFERENCE.rglob("*.md"):
        if path not in wanted and path.read_text(encoding="utf-8").startswith(_GENERATED):
            path.unlink()
    for path, text in (wanted | notebooks()).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main() -> int:
    """Runs one of the steps `write`, `build` and `serve`."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    parser.add_argument(
        "step", choices=("write", "build", "serve"), help="write: reference, notebooks; build: .site; serve: locally"
    )
    step = parser.parse_args().step
    if step == "write":
        write()
        return 0
    for path, text in home_pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    program = str(Path(sys.executable).with_name("zensical"))
    words = [program, "build", "--clean", "--strict"] if step == "build" else [program, "serve"]
    code = subprocess.run(words, cwd=ROOT, check=False).returncode
    if step == "build" and code == 0:
        (ROOT / ".site/llms.txt").write_text(llms_text(), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
