"""A Hugging Face data set that was saved to a folder, as documents of tokens.

Source: `datasets.load_from_disk`, for what `save_to_disk` has written.
Costs reading the rows once in every rank, up to the limit.
The production version streams them.

A column `text` is taken as bytes, a column `input_ids` as tokens.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from course_lib.data.corpus import VALIDATION
from course_lib.trace import Refusal

MARKS = ("dataset_info.json", "dataset_dict.json")
TEXT, TOKENS = "text", "input_ids"
OTHER_HALF = ("validation", "valid", "test")


def data_set_documents(folder: Path, limit: int) -> tuple[dict[str, list[torch.Tensor]], int]:
    """Documents to train and to validate on, and how many tokens there are.

    Args:
        folder: of `save_to_disk`. Of a data set without a split for validation, every tenth row is.
        limit: tokens at which each half stops.

    Raises:
        Refusal: the library is not installed, or there is no such column.
    """
    loaded = _load(folder)
    if hasattr(loaded, "column_names") and not isinstance(loaded.column_names, dict):
        of: dict[str, Any] = {
            "train": loaded.select([n for n in range(len(loaded)) if n % VALIDATION]),
            "validation": loaded.select(range(0, len(loaded), VALIDATION)),
        }
    else:
        other = next((name for name in OTHER_HALF if name in loaded), None)
        if "train" not in loaded or other is None:
            found = ", ".join(loaded)
            raise Refusal(
                f"train on {folder}", f"splits {found}", "train and validation are needed"
            )
        of = {"train": loaded["train"], "validation": loaded[other]}
    halves = {half: list(_documents(rows, folder, limit)) for half, rows in of.items()}
    most = max((int(d.max()) for part in halves.values() for d in part if len(d)), default=0)
    return halves, max(256, most + 1)


def _load(folder: Path) -> Any:
    try:
        return importlib.import_module("datasets").load_from_disk(str(folder))
    except ImportError:
        raise Refusal(
            f"read {folder}",
            "no library `datasets`",
            "pip install datasets, or give a folder of text files",
        ) from None


def _documents(rows: Any, folder: Path, limit: int) -> Iterator[torch.Tensor]:
    column = next((name for name in (TOKENS, TEXT) if name in rows.column_names), None)
    if column is None:
        found = f"columns {', '.join(rows.column_names)}"
        raise Refusal(f"tokens from {folder}", found, f"one of them is `{TEXT}` or `{TOKENS}`")
    total = 0
    for row in rows:
        if total >= limit:
            return
        value = list(row[column].encode()) if column == TEXT else row[column]
        document = torch.tensor(value, dtype=torch.int32)[: limit - total]
        total += len(document)
        yield document
