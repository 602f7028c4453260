"""VOC XML: strict and lenient agree wherever strict reads, and both with xml.etree; no document type is ever read."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from packer.errors import PackerError
from packer.sources.annotations._voc_xml import read_annotation
from tests.fuzz import words
from tests.fuzz.target import Disagreement
from tests.support.layout_trees.voc import annotated_object, annotation, part

TOKENS = (b"<object>", b"</object>", b"<bndbox>", b"<xmin>1</xmin>", b"<part>", b"<num>1</num>", b"&b;", *words.NUMBERS)
TOKENS += (b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"<?xml version='1.0' encoding='utf-16'?>", b"encoding='latin-1'")
TOKENS += (b"<![CDATA[1]]>", b"\xc2\xb2", b"<difficult>256</difficult>")
_PATH = Path("fuzz.xml")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")


def seeds() -> Iterator[bytes]:
    whole = annotation(
        [
            annotated_object("person", (1, 2, 30, 40.5), part("head", (5.5, 6, 7.5, 8)), flags={"difficult": 1}),
            annotated_object("cat", (3, 4, 64, 48), "<index>1</index><father><num>2</num></father><children/>"),
        ],
        filename="a.jpg",
    )
    yield whole.encode()
    yield whole.encode("utf-16")
    yield b"<annotation><object><name>a</name></object></annotation>"
    yield b'<!DOCTYPE a [<!ENTITY b "cc"><!ENTITY d "&b;&b;">]><annotation><filename>&d;</filename></annotation>'


def check(data: bytes) -> None:
    lenient = read_annotation(data, _PATH, strict=False)
    root = ET.fromstring(data)
    objects = root.findall("object")
    there = len(objects) or sum(element.tag.lower() == "bndbox" for element in root.iter())
    if len(lenient.objects) + lenient.dropped != there:
        raise Disagreement(f"{len(lenient.objects)} read, {lenient.dropped} dropped, {there} there")
    if re.search(rb"<!DOCTYPE[\s\S]*?\[[\s\S]*?<!ENTITY", data) and root.findtext("filename", "") == "cccc":
        raise Disagreement("an entity was read")
    try:
        strict = read_annotation(data, _PATH, strict=True)
    except PackerError as error:
        if not lenient.dropped:
            raise Disagreement(f"refused, and nothing dropped: {error}") from error
        raise
    if strict != lenient:
        raise Disagreement(f"strict {strict}, lenient {lenient}")
    for found, there in zip(strict.objects, objects, strict=True):
        corners = tuple(float(there.findtext(f"bndbox/{tag}", "nan")) for tag in _CORNERS)
        if (found.name, found.box) != (there.findtext("name", "").strip(), corners):
            raise Disagreement(f"{found}, xml.etree {there.findtext('name')!r} {corners}")
