"""Docstrings, comments, messages and pages are in the English of CONTRIBUTING.md, as far as patterns can check."""

import ast
import functools
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_MOST_WORDS = 25  # of a sentence
_RULE = "rule of 'Words' in CONTRIBUTING.md:"
_NOTES = ("dev", "reference", "project")  # pages of docs/ for maintainers, and generated pages
# word or phrase -> what to write instead
_PHRASES = {
    r"whoever|nobody|somebody|anew|beside|kin|thereof|therein|hereby": "name the subject; again, next to, related",
    r"mend(s|ed|ing)?|settle[sd]?": "fix, resolve",
    r"(is|are|was|were|be) (said|told)|as said|said above": "returns, checks, states",
    r"(says?|tells?|knows?|asks?) (so|of|what|which|that|how|whether|where)": "returns, contains, depends on",
    r"(?<!there )(is|are|was|were) no (?!longer|more|less)[a-z]+": "negate the verb: is not a",
    r"(?<!such )as of|of which|such an?|that which|those which": "use the noun",
    r"by itself|apart|lies|lie|stands|stand": "automatically, separate, is",
    r"what it (is|has|holds|makes|takes|says)|what is (there|in it|here)": "name the thing",
}
_PHRASE = {re.compile(rf"\b({phrase})\b", re.I): instead for phrase, instead in _PHRASES.items()}
_BEGIN = re.compile(
    r"^(Of|For this|What|Whoever|Who|Where|Nobody|None of|Those|That|Whether|As|So that|From where|How|Why|Nothing)"
    r"\b(?! to )"
)
_BEGIN_WITH = "begin with the subject: a verb (functions) or a noun phrase (classes, modules)"
_CODE = re.compile(r"``.*?``|`[^`]*`")
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Example|Examples|Note|Source|Shape|Layout):\s*$")


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    """Every node of a file's syntax tree, for the rules on docstrings and on messages."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.fixture(scope="module", autouse=True)
def trees_are_freed() -> Iterator[None]:
    """A million nodes slow down each collection of later tests."""
    yield
    _nodes.cache_clear()


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring and of each run of comment lines."""
    for node in _nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield (node.body[0].lineno, docstring)
    run: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#(!| (noqa|type:|fmt:|ruff:|mypy:))", token.string):
            text = token.string.lstrip("# ")
            is_alone = not token.line[: token.start[1]].strip()
            if run and is_alone and token.start[0] == last + 1:
                run.append(text)
            else:
                if run:
                    yield start, " ".join(run)
                run, start = [text], token.start[0]
            last = token.start[0] if is_alone else -1
    if run:
        yield start, " ".join(run)


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a docstring or comment, without code blocks, tables and headings of sections."""
    paragraph: list[str] = []
    is_verbatim = False  # a block that click does not wrap
    for line in [*textwrap.dedent(text).splitlines(), ""]:
        is_verbatim = line.strip() == "\b" or (is_verbatim and bool(line.strip()))
        bare = "" if is_verbatim else line.strip()
        begins_entry = bool(re.match(r"(\*|-|\d+\.|`?\*{0,2}\w+`?( \([^)]*\))?:) ", bare))
        is_prose = bool(bare) and not _SECTION.match(bare) and not re.match(r"\||>>>|\.\.\.|[=\-+~]{3}", bare)
        if paragraph and (not is_prose or begins_entry):
            yield from re.split(r"(?<=[.!?;])\s+(?=[A-Z`(]|packer\b)", " ".join(paragraph))
            paragraph = []
        if is_prose:
            paragraph.append(re.sub(r"^(\*|-|\d+\.)\s+", "", bare) if begins_entry else bare)


def _phrases(where: str, sentence: str) -> list[str]:
    """One line for each phrase of a sentence that has a plain replacement."""
    prose = _CODE.sub("CODE", sentence)
    matches = ((phrase.search(prose), instead) for phrase, instead in _PHRASE.items())
    return [f"{where}: {match[0]!r}: {instead}: {sentence}" for match, instead in matches if match]


def _findings(where: str, text: str) -> list[str]:
    """One line for each sentence of a text that breaks a rule: place, the rule and the sentence."""
    found = []
    for sentence in _sentences(text):
        prose = _CODE.sub("CODE", sentence)
        words = len(re.findall(r"[A-Za-z0-9][\w'./\-]*", prose))
        if words > _MOST_WORDS:
            found.append(f"{where}: {words} words, at most {_MOST_WORDS}: {sentence}")
        found += _phrases(where, sentence)
    return found


def _beginnings(where: str, text: str) -> list[str]:
    """One line for each sentence of a docstring or comment that does not begin with its subject."""
    begun = [sentence for sentence in _sentences(text) if _BEGIN.match(_CODE.sub("CODE", sentence))]
    return [f"{where}: {_BEGIN_WITH}: {sentence}" for sentence in begun]


def _messages(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each string of at least four words: messages, notes and help texts. `X` stands for a value."""
    nodes = _nodes(path)
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    inner |= {id(value) for node in nodes if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in nodes:
        values = node.values if isinstance(node, ast.JoinedStr) else [node]
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in inner:
            text = "".join(str(value.value) if isinstance(value, ast.Constant) else "X" for value in values)
            if len(text.split()) >= 4:
                yield node.lineno, text


def _prose(page: str) -> str:
    """The text of a Markdown page, without code blocks, tables, headings, emphasis and targets of links."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)
    page = re.sub(r"\*+(?=\S)|(?<=\S)\*+", "", page)
    return re.sub(r"^#.*", "", page, flags=re.MULTILINE)


def _rooms() -> list[str]:
    return sorted(
        {path.name for path in (ROOT / "packer").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    )


@pytest.mark.parametrize("room", _rooms())
def test_docstrings_and_comments_are_plain_english(room: str) -> None:
    place = ROOT / "packer" / room
    paths = [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))
    found = [
        line
        for path in paths
        for number, text in _texts(path)
        for check in (_findings, _beginnings)
        for line in check(f"{path.relative_to(ROOT)}:{number}", text)
    ]
    assert not found, "\n".join([f"{len(found)} sentences of packer/{room} break a {_RULE}", *found])


def test_messages_and_help_texts_are_plain_english() -> None:
    found = [
        line
        for path in sorted((ROOT / "packer").rglob("*.py"))
        for number, text in _messages(path)
        for line in _phrases(f"{path.relative_to(ROOT)}:{number}", text)
    ]
    assert not found, "\n".join([f"{len(found)} messages break a {_RULE}", *found])


def test_pages_are_plain_english() -> None:
    written = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.relative_to(ROOT).parts[1] not in _NOTES]
    found = [
        line
        for path in (ROOT / "README.md", ROOT / "SECURITY.md", *written)
        if path != ROOT / "docs/index.md"  # the copy of the README
        for line in _findings(str(path.relative_to(ROOT)), _prose(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join([f"{len(found)} sentences of pages break a {_RULE}", *found])
