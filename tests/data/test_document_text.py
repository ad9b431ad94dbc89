"""HTML and PDF as text, with places; what cannot be read says why."""

import importlib.util
from pathlib import Path

import pytest

from triform.data.document_text import read_document
from triform.data.line_reader import DataError
from triform.tasks.passage_splitter import list_files, split_passages

PAGE = """<!doctype html><html><head><title>No</title><style>p {}</style></head>
<body><h1>Moles &amp; holes</h1>
<p>A mole
digs <b>deep</b> holes.</p><script>var x = "no";</script>
<table><tr><td>Oslo</td><td>7</td></tr></table></body></html>"""
needs_pypdf = pytest.mark.skipif(importlib.util.find_spec("pypdf") is None, reason="pypdf is not installed")


def write_pdf(path: Path, *texts: str) -> None:
    """A PDF of one page per text, by hand."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    pages = []
    for text in texts:
        stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
        pages.append(len(objects) + 1)
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents {len(objects) + 2} 0 R /Resources "
            "<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(f'{one} 0 R' for one in pages)}] /Count {len(pages)} >>"
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\n"
    )
    path.write_bytes(data + end.encode() + f"startxref\n{len(data)}\n%%EOF".encode())


def test_html_is_what_a_reader_sees_and_knows_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGE)
    (piece,) = read_document(path)
    assert piece.text.split() == "Moles & holes A mole digs deep holes. Oslo 7".split()  # noqa: SIM905
    assert piece.find_line(piece.text.index("mole ")) == 3
    (passage,) = split_passages(path)
    assert (passage.line, passage.unit) == (2, "line")


def test_character_sets(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes('<meta charset="iso-8859-1"><p>Bär'.encode("latin-1"))
    assert read_document(path)[0].text.strip() == "Bär"
    path.write_bytes("<p>Bär".encode("cp1252"))
    assert read_document(path)[0].text.strip() == "Bär"
    path.write_bytes(b'<meta charset="utf-8"><p>B\xe4r')
    with pytest.raises(DataError, match="is not utf-8, as it says"):
        read_document(path)
    path.write_bytes(b'<meta charset="klingon"><p>x')
    with pytest.raises(DataError, match="'klingon'"):
        read_document(path)
    path.write_text("<script>only code</script>")
    with pytest.raises(DataError, match="there is no text in"):
        read_document(path)


@needs_pypdf
def test_pdf_pages(tmp_path: Path) -> None:
    path = tmp_path / "two.pdf"
    write_pdf(path, "Moles dig holes.", "", "Lions eat meat.")
    assert [(piece.text.strip(), piece.line, piece.unit) for piece in read_document(path)] == [
        ("Moles dig holes.", 1, "page"),
        ("Lions eat meat.", 3, "page"),
    ]
    assert [passage.line for passage in split_passages(path)] == [1, 3]
    write_pdf(path, "")
    with pytest.raises(DataError, match="a scanned page needs OCR first"):
        read_document(path)
    for damage in (b"", b"%PDF-1.4\n", path.read_bytes()[:100], b"\0" * 5000):
        path.write_bytes(damage)
        with pytest.raises(DataError) as refused:
            read_document(path)
        assert "\n" not in str(refused.value)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triform.data.document_text.find_spec", lambda name: None)
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF")
    with pytest.raises(DataError, match="pip install pypdf"):
        read_document(path)
    assert path in list(list_files([tmp_path]))
