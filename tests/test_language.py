"""Docstrings and comments of `packer/` are written in the English of CONTRIBUTING.md, as far as patterns can check."""

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_MOST_WORDS = 25  # of a sentence
# word or phrase -> what to write instead
_PHRASES = {
    r"whoever|nobody|somebody|anew|beside|kin|thereof|therein|hereby": "name the subject; again, next to, related",
    r"mend(s|ed|ing)?|settle[sd]?": "fix, resolve",
    r"(is|are|was|were|be) (said|told)|as said|said above": "returns, checks, states",
    r"(says?|tells?|knows?|asks?) (so|of|what|which|that|how|whether|where)": "returns, contains, depends on",
    r"(is|are|was|were) no (?!longer|more|less)[a-z]+": "negate the verb: is not a",
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


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring and of each run of comment lines."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield (node.body[0].lineno, docstring)
    run: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
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
            yield from re.split(r"(?<=[.!?;])\s+(?=[A-Z`(])", " ".join(paragraph))
            paragraph = []
        if is_prose:
            paragraph.append(re.sub(r"^(\*|-|\d+\.)\s+", "", bare) if begins_entry else bare)


def findings(path: Path) -> list[str]:
    """One line for each sentence that breaks a rule: file, line, the rule and the sentence."""
    found = []
    for line, text in _texts(path):
        for sentence in _sentences(text):
            prose = _CODE.sub("CODE", sentence)
            words = len(re.findall(r"[A-Za-z0-9][\w'./\-]*", prose))
            where = f"{path.relative_to(ROOT)}:{line}"
            if words > _MOST_WORDS:
                found.append(f"{where}: {words} words, at most {_MOST_WORDS}: {sentence}")
            if _BEGIN.match(prose):
                found.append(f"{where}: {_BEGIN_WITH}: {sentence}")
            found.extend(
                f"{where}: {match[0]!r}: {instead}: {sentence}"
                for phrase, instead in _PHRASE.items()
                for match in [phrase.search(prose)]
                if match
            )
    return found


def _rooms() -> list[str]:
    return sorted(
        {path.name for path in (ROOT / "packer").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    )


@pytest.mark.parametrize("room", _rooms())
def test_docstrings_and_comments_are_plain_english(room: str) -> None:
    place = ROOT / "packer" / room
    paths = [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))
    found = [line for path in paths for line in findings(path)]
    assert not found, "\n".join(
        [f"{len(found)} sentences of packer/{room} break a rule of 'Words' in CONTRIBUTING.md:", *found]
    )
