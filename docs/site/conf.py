"""What Sphinx is told: extensions, the theme, and that no page asks for anything elsewhere."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # for the extensions beside this file, and for autodoc

ROOT = Path(os.environ.get("COURSE_ROOT", HERE.parents[1]))
# The address of this copy; none while nobody has run `course dev origin`.
KNOWN = re.search(
    r'^Repository = "https://github\.com/(?!OWNER/)([^"]+)"',
    (ROOT / "pyproject.toml").read_text(encoding="utf-8"),
    re.M,
)

project = html_title = "Distributed training, from scratch"
language = "en"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "docs.site.mathml",
    "docs.site.docstrings",
]
nb_execution_mode = "off"  # the committed outputs are shown
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # widgets need a kernel; their still picture shows
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = myst_dmath_allow_digits = False  # 5 $ is a price
myst_dmath_double_inline = True
myst_heading_anchors = 4
autosummary_generate = False
napoleon_use_ivar = True  # a class's "Attributes" in a list, where its members are listed as well
suppress_warnings = ["misc.highlighting_failure"]  # `!git` in a cell that GitHub shows as Python
autodoc_typehints = "signature"
autodoc_member_order = "alphabetical"
autodoc_preserve_defaults = True
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries = False
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div.highlight-python pre, div.highlight-ipython3 pre, div.highlight-bash pre"

html_theme = "sphinx_book_theme"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "home_page_in_toc": False,
    "navbar_persistent": [],  # the search field is in the sidebar
}
if KNOWN:
    owner, repository = KNOWN[1].split("/")
    html_baseurl = f"https://{owner}.github.io/{repository}/"
    html_theme_options |= {
        "repository_url": f"https://github.com/{KNOWN[1]}",
        "repository_branch": "main",
        "use_repository_button": True,
        "launch_buttons": {
            "colab_url": "https://colab.research.google.com",
            "binderhub_url": "https://mybinder.org",
        },
    }
