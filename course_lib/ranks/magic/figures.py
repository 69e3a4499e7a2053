"""A matplotlib backend for ranks: `plt.show()` sends the figures to the notebook as pictures."""

from __future__ import annotations

import base64
import io
import sys
from typing import Any

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

FigureCanvas = FigureCanvasAgg
FigureManager = FigureManagerBase


def show(*args: Any, **kwargs: Any) -> None:
    """Sends every open figure to the notebook and closes it."""
    display = sys.modules["__main__"].display
    for manager in Gcf.get_all_fig_managers():
        data = io.BytesIO()
        manager.canvas.figure.savefig(data, format="png", facecolor="white", bbox_inches="tight")
        picture = base64.b64encode(data.getvalue()).decode()
        display({"image/png": picture, "text/plain": repr(manager.canvas.figure)})
    Gcf.destroy_all()
