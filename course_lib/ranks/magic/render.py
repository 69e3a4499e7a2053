"""What several ranks print, as one text: in rank order, equal lines once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HEAD, TAIL = 200, 50  # lines shown of a longer text
FLOOD = 1 << 20  # bytes of a rank's output beyond which only its two ends are looked at
END = 1 << 17  # bytes of such an end
CURSOR = re.compile(r"\x1b\[[0-9;?]*[A-HJKSTfhlsu]")  # moves of the cursor; colours stay
UP_OR_DOWN = re.compile(r"\x1b\[\d{0,3}[AB]")  # farther than any terminal is high: no move
BAR = "│"

Block = tuple[list[int], list[str]]  # ranks, and the lines that they printed alike


def lines_of(data: bytes) -> list[str]:
    """A rank's output as the lines that a terminal would show at the end."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = _screen(text) if UP_OR_DOWN.search(text) else CURSOR.sub("", text).split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def _screen(text: str) -> list[str]:
    """The lines of a text in which the cursor goes up and down, as nested progress bars have it."""
    rows, at = [""], 0
    for part in re.split(rf"(\n|{UP_OR_DOWN.pattern})", text):
        if not UP_OR_DOWN.fullmatch(part) and part != "\n":
            rows[at] += CURSOR.sub("", part)
            continue
        step = 1 if part == "\n" else int(part[2:-1] or 1) * (-1 if part[-1] == "A" else 1)
        at = max(0, at + step)
        rows += [""] * (at + 1 - len(rows))
        if part == "\n" and rows[at]:
            rows[at] += "\r"  # a new line is written from its left end
    return rows


def fold(outputs: Mapping[int, bytes | bytearray]) -> list[Block]:
    """Blocks of (ranks, lines): what all ranks print alike stands once, the rest rank by rank.

    Lines are compared by position where all ranks printed equally many; otherwise only what all
    have in common at the beginning and at the end is folded.
    """
    each = {rank: lines_of(bytes(data)) for rank, data in sorted(outputs.items()) if data}
    if not each:
        return []
    silent = len(each) < len(outputs)
    if silent or len(each) == 1:
        return _by_content(each)
    texts = list(each.values())
    if len({len(lines) for lines in texts}) == 1:
        same = [len(set(row)) == 1 for row in zip(*texts, strict=True)]
    else:
        same = []
    return _fold_runs(each, same) if same else _fold_ends(each)


def _fold_runs(each: Mapping[int, list[str]], same: list[bool]) -> list[Block]:
    """Runs of lines that are alike on all ranks, and runs that are not."""
    blocks, start = [], 0
    for at in range(1, len(same) + 1):
        if at == len(same) or same[at] != same[start]:
            blocks += _by_content({rank: lines[start:at] for rank, lines in each.items()})
            start = at
    return blocks


def _fold_ends(each: Mapping[int, list[str]]) -> list[Block]:
    """The common beginning once, the middles rank by rank, the common end once."""
    texts = list(each.values())
    shortest = min(map(len, texts))
    head = _common(zip(*texts, strict=False))
    tail = min(_common(zip(*map(reversed, texts), strict=False)), shortest - head)
    ranks = list(each)
    middle = {rank: lines[head : len(lines) - tail] for rank, lines in each.items()}
    blocks = [(ranks, texts[0][:head])] if head else []
    blocks += _by_content({rank: lines for rank, lines in middle.items() if lines})
    return blocks + ([(ranks, texts[0][-tail:])] if tail else [])


def _common(rows: Iterable[tuple[str, ...]]) -> int:
    count = 0
    for row in rows:
        if len(set(row)) > 1:
            break
        count += 1
    return count


def _by_content(each: Mapping[int, list[str]]) -> list[Block]:
    """Ranks with the same lines together, in the order of their first rank."""
    found: dict[tuple[str, ...], list[int]] = {}
    for rank, lines in each.items():
        found.setdefault(tuple(lines), []).append(rank)
    return [(ranks, list(lines)) for lines, ranks in found.items()]


def _ends(data: bytes | bytearray) -> tuple[bytes | bytearray, int]:
    """The beginning and the end of a flood, and how many lines more there are between.

    A line in the middle says so; it stands for one of them.
    """
    if len(data) <= FLOOD:
        return data, 0
    first = data.rfind(b"\n", 0, END) + 1 or END
    last = data.find(b"\n", len(data) - END) + 1 or len(data) - END
    count = data.count(b"\n", first, last)
    gap = f"… {count:,} more lines …" if count else "…"
    return data[:first].rstrip(b"\n") + f"\n{gap}\n".encode() + data[last:], max(0, count - 1)


def label_of(ranks: list[int]) -> str:
    """`rank 2`, `ranks 0–3`, `ranks 0,2`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}–{ranks[-1]}"
    return "ranks " + ",".join(map(str, ranks))


def text_of(outputs: Mapping[int, bytes | bytearray], head: int = HEAD, tail: int = TAIL) -> str:
    """The folded output as text, lines labelled with their ranks; long texts lose their middle."""
    ends = {rank: _ends(data) for rank, data in outputs.items()}
    unseen = max((count for _, count in ends.values()), default=0)
    blocks = fold({rank: data for rank, (data, _) in ends.items()})
    labels = [label_of(ranks) for ranks, _ in blocks]
    width = max(map(len, labels), default=0)
    lines = [
        f"{label:<{width}} {BAR} {line}".rstrip()
        for label, (_, block) in zip(labels, blocks, strict=True)
        for line in block
    ]
    if len(lines) > head + tail:
        left_out = f"{len(lines) - head - tail + unseen:,}"
        about = f"over {left_out}" if unseen else left_out
        note = f"… {about} more lines; output(rank) has all of them …"
        lines = [*lines[:head], note, *lines[-tail:]]
    return "\n".join(lines)
