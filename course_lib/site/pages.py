"""One page of the site: a notebook, a Python file or a Markdown file as HTML."""

from __future__ import annotations

import io
import re
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import mistune
import nbformat
from matplotlib.mathtext import math_to_image
from nbconvert import HTMLExporter
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from traitlets.config import Config

# nbconvert's page loads these from elsewhere. Formulas become pictures here; there are no diagrams,
# and widgets need a kernel anyway.
REMOTE_SCRIPT = re.compile(r'<script\b[^>]*\bsrc="https?://[^"]*"[^>]*>\s*</script>')
MATHJAX = re.compile(r"<!-- Load mathjax -->.*?<!-- End of mathjax configuration -->", re.S)
MERMAID = re.compile(r'<script type="module">(?:(?!</script>).)*mermaid.*?</script>', re.S)
FORMULA = re.compile(r"(?<![\\$])(\${1,2})(?=\S)(.+?)(?<=\S)\1(?!\$)", re.S)
# What matplotlib's mathematics calls otherwise than TeX, or lacks.
SPELLED = {r"\Big(": r"\left(", r"\Big)": r"\right)", r"\;": r"\ "}
HIDDEN = "hidden-source"
CONFIG = Config({"TagRemovePreprocessor": {"enabled": True, "remove_input_tags": (HIDDEN,)}})
SHARED = (
    "pre{overflow-x:auto}table{border-collapse:collapse}"
    "td,th{border:1px solid #c8ccd2;padding:2px 8px;text-align:left}img{max-width:100%}"
    ".way{display:flex;gap:1em;justify-content:space-between;font-family:system-ui,sans-serif;"
    "padding:8px 1em}"
)
# Of pages that have no template.
PLAIN = (
    "body{max-width:60em;margin:1em auto;padding:0 1em;font-family:system-ui,sans-serif;"
    "line-height:1.5}"
)


def notebook_page(path: Path, way: str) -> str:
    """A notebook with its outputs; players and answer fields work, sliders with a kernel do not.

    Args:
        path: the notebook, executed.
        way: HTML of the links to the pages around it, put at the top and at the end.
    """
    notebook: Any = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = FORMULA.sub(_picture_of, cell.source)
        elif cell.metadata.get("jupyter", {}).get("source_hidden"):  # it has the answer in it
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), HIDDEN]
    exporter = HTMLExporter(template_name="lab", embed_images=True, config=CONFIG)
    body, _ = exporter.from_notebook_node(
        notebook, {"metadata": {"name": path.stem, "path": str(path.parent)}}
    )
    for elsewhere in (REMOTE_SCRIPT, MATHJAX, MERMAID):
        body = elsewhere.sub("", body)
    body = body.replace("</head>", f"<style>{SHARED}</style></head>", 1)
    body = re.sub(r"(<body\b[^>]*>)", lambda found: found[1] + way, body, count=1)
    return body.replace("</body>", f"{way}</body>")


def _picture_of(formula: re.Match[str]) -> str:
    """A formula as an SVG in the text, its TeX for those who cannot see it."""
    tex = " ".join(formula[2].split())
    plain = tex
    for theirs, ours in SPELLED.items():
        plain = plain.replace(theirs, ours)
    sink = io.BytesIO()
    math_to_image(f"${plain}$", sink, format="svg", dpi=150)
    address = "data:image/svg+xml," + quote(sink.getvalue().decode())
    picture = f'<img alt="{escape(tex)}" src="{address}" style="vertical-align:middle">'
    return f"<p>{picture}</p>" if formula[1] == "$$" else picture


def python_page(path: Path, way: str) -> str:
    """A Python file with its lines numbered."""
    formatter: Any = HtmlFormatter(linenos="inline", cssclass="code")
    code = highlight(path.read_text(encoding="utf-8"), PythonLexer(), formatter)
    look = f"<style>{formatter.get_style_defs('.code')}</style>"
    return _page(path.name, look + way + f"<h1>{escape(path.name)}</h1>{code}")


def markdown_page(path: Path, way: str) -> str:
    """A Markdown file; raw HTML in it stays."""
    render: Any = mistune.create_markdown(escape=False, plugins=["table"])
    return _page(path.stem, way + render(path.read_text(encoding="utf-8")))


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{PLAIN}{SHARED}</style></head><body>{body}</body></html>"
    )
