"""A model's shape from a file: in the course's own keys, or as a Hugging Face config.json has it.

Source: the fields of `ModelConfig` and `MoEConfig`; `hugging_face_shape.py` has the other tool's.
Costs reading a page of JSON.
The production version has a converter for every family.

    {"layers": 8, "hidden": 512, "heads": 8, "kv_heads": 2, "ffn": 1408, "moe": {"experts": 8}}
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from course_lib.model import ModelConfig, MoEConfig
from course_lib.model.config import RopeScaling
from course_lib.trace import Refusal
from course_lib.train.command.other_tools.hugging_face_shape import from_hugging_face


def read_model(path: Path, sequence: int, vocabulary: int) -> ModelConfig:
    """The model in a file, for windows of a length, and for text of so many tokens.

    Args:
        path: of the JSON, or of the folder with a config.json.
        sequence: T of the training.
        vocabulary: tokens of the text; our own file may leave the model's out.

    Raises:
        Refusal: no such file, a key that nobody knows, a value that is none, or something that our
            model does not have.
    """
    found = _read(path)
    if "model_type" in found:
        config = from_hugging_face(found, sequence)
    else:
        config = _own({"vocabulary": vocabulary, **found, "sequence": sequence}, path)
    if config.vocabulary < vocabulary:
        raise Refusal(
            f"the model in {path} for text of {vocabulary} tokens",
            f"a vocabulary of {config.vocabulary}",
            "every token of the text has a row of the embedding",
        )
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        file = path / "config.json" if path.is_dir() else path
        if file.is_fifo():
            why = "every rank reads it: give a file, or a folder with a config.json"
            raise Refusal(f"the model in {path}", "a pipe", why)
        found = json.loads(file.read_bytes())
    except OSError as error:
        why = "--model takes a file of JSON, or a folder with a config.json"
        raise Refusal(f"the model in {path}", error.strerror or str(error), why) from None
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the model in {path}", str(error), "it is a JSON object") from None
    if not isinstance(found, dict):
        raise Refusal(f"the model in {path}", type(found).__name__, "it is a JSON object")
    return found


def _own(given: dict[str, Any], path: Path) -> ModelConfig:
    """From the fields of ModelConfig, `moe` and `rope_scaling` with those of their own."""
    inner = {"moe": MoEConfig, "rope_scaling": RopeScaling}
    parts = {name: given.pop(name, None) for name in inner}
    _refuse_unknown(given, ModelConfig, path)
    for name, kind in inner.items():
        part = parts[name]
        if part is None:
            continue
        if not isinstance(part, dict):
            raise Refusal(f"the model in {path}", f"{name} = {part!r}", f"{name} is a JSON object")
        _refuse_unknown(part, kind, path)
        given[name] = kind(**part)
    return ModelConfig(**given)


def _refuse_unknown(given: dict[str, Any], kind: type, path: Path) -> None:
    defaults = {each.name: each.default for each in fields(kind)}
    unknown = sorted(given.keys() - defaults.keys())
    if unknown:
        known = ", ".join(defaults)
        raise Refusal(f"the model in {path}", f"keys {', '.join(unknown)}", f"known are: {known}")
    for name, value in given.items():
        default = defaults[name]
        allowed = {type(default)} | ({int} if isinstance(default, float) else set())
        if default is None:  # a number that may be left out
            allowed |= {int, float}
        if type(value) not in allowed:
            wanted = "float" if default is None else type(default).__name__
            raise Refusal(f"the model in {path}", f"{name} = {value!r}", f"{name} is of {wanted}")
