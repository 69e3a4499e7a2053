"""How every picture looks: one palette, one colour per rank, one way to write bytes and times."""

from __future__ import annotations

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILLION, YELLOW, GREY = "#56B4E9", "#D55E00", "#F0E442", "#999999"

# Okabe and Ito's black is left out: it is lost on a dark page. Grey takes its place, last.
RANK_COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW, GREY)
CURVE_COLORS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)  # of lines in one chart

MEMORY_COLORS = {
    "parameters": BLUE,
    "gradients": ORANGE,
    "optimizer state": GREEN,
    "activations": SKY,
    "communication buffers": PURPLE,
}

FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

# What is not a palette colour has a role, and the page says what the role looks like: JupyterLab
# (--jp-...), a static site (--pst-...), VS Code, or, in an <img> that knows no page, the fallback,
# which is light. Words that stand on the page itself have the page's colour and no role.
# Paper is not quite white, so that it can be told from white text on blue.
INK, SOFT, LINE, PANEL, PAPER = "#1b1b1f", "#62666d", "#c8ccd2", "#eceef1", "#fefefe"
ROLES = {
    "ink": ("--jp-ui-font-color1", "--pst-color-text-base", INK),
    "soft": ("--jp-ui-font-color2", "--pst-color-text-muted", SOFT),
    "line": ("--jp-border-color1", "--pst-color-border", LINE),
    "panel": ("--jp-layout-color2", "--pst-color-surface", PANEL),
    "paper": ("--jp-layout-color0", "--pst-color-background", PAPER),
}
# VS Code's themes agree on two colours, text and paper; what is between them is mixed.
VS_CODE = {
    "ink": "var(--vscode-editor-foreground)",
    "paper": "var(--vscode-editor-background)",
    "soft": "color-mix(in srgb,var(--cp-ink) 70%,var(--cp-paper))",
    "line": "color-mix(in srgb,var(--cp-ink) 25%,var(--cp-paper))",
    "panel": "color-mix(in srgb,var(--cp-ink) 9%,var(--cp-paper))",
}
ROLE_CSS = (
    ".cp{"
    + "".join(f"--cp-{n}:var({jp},var({pst},{c}));" for n, (jp, pst, c) in ROLES.items())
    + f"font-family:{FONT}}}[data-vscode-theme-kind] .cp{{"
    + "".join(f"--cp-{name}:{color};" for name, color in VS_CODE.items())
    + "}"
    + "".join(f".cp .{n}{{fill:var(--cp-{n})}}" for n in ROLES)
    + "".join(f".cp .{n}-edge{{stroke:var(--cp-{n});fill:none}}" for n in ("ink", "line"))
    + ".cp .halo{paint-order:stroke;stroke:var(--cp-paper);stroke-width:8;stroke-linejoin:round}"
)
ROLE_STYLE = f"<style>{ROLE_CSS}</style>"  # as each picture brings it, to stand alone


def rank_color(rank: int) -> str:
    """The colour of a rank, as `#RRGGBB`; from rank 8 on, colours repeat and the number tells."""
    return RANK_COLORS[rank % len(RANK_COLORS)]


def text_on(color: str) -> str:
    """The colour of text on a palette colour: white on blue, black on all others."""
    return "#fff" if color == BLUE else "#000"


def format_bytes(count: float, decimal: bool = False) -> str:
    """`768 B`, `1.5 MiB`: bytes in IEC units (1 KiB = 1024 B), three digits at most.

    With `decimal`, in powers of ten as papers and price lists have them: `31.4 GB`.
    """
    size, unit, scale = float(count), "B", 1000 if decimal else 1024
    for larger in ("kB MB GB TB" if decimal else "KiB MiB GiB TiB").split():
        if abs(size) < scale:
            break
        size, unit = size / scale, larger
    return f"{_three_digits(size)} {unit}"


def format_time(seconds: float) -> str:
    """`85 µs`, `1.2 ms`, `3 s`: a time, three digits at most."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} µs"


def _three_digits(value: float) -> str:
    """`1.5`, `12.3`, `1023`: no trailing zeros, no exponent."""
    decimals = max(0, 3 - len(str(int(abs(value)))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
