"""One's own text: a folder of files, packed tokens, a Hugging Face data set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from course_lib.data import WindowSampler, load_data, vocabulary_of
from course_lib.data.pack_folder import main
from course_lib.data.packed import write_packed
from course_lib.trace import Refusal

LIMIT = 1 << 20


def texts(folder: Path, count: int = 40) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.txt").write_text(f"{number}: " + "word " * 20)
    (folder / "picture.png").write_bytes(b"\x89PNG\0\xff")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "a.txt").write_text("not this")
    return folder


def test_a_folder_of_text_is_cut_by_file(tmp_path: Path) -> None:
    corpus = load_data(str(texts(tmp_path / "t")), LIMIT)
    assert corpus.files == 40 and corpus.vocabulary == 256
    for tokens, starts in (
        (corpus.train, corpus.train_starts),
        (corpus.validation, corpus.validation_starts),
    ):
        assert starts is not None and starts[0] == 0
        begins = [bytes(tokens[start : start + 2].tolist()) for start in starts.tolist()]
        assert all(text[:1].isdigit() for text in begins)
    assert corpus.train_starts is not None and len(corpus.train_starts) > 30
    whole = bytes(corpus.train.tolist()) + bytes(corpus.validation.tolist())
    assert b"PNG" not in whole and b"not this" not in whole
    assert len(load_data(str(tmp_path / "t"), 100).train) < 101


def test_one_file_is_cut_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("x" * 900 + "y" * 100)
    corpus = load_data(str(tmp_path / "book.txt"), LIMIT)
    assert set(corpus.train.tolist()) == {ord("x")}
    assert set(corpus.validation.tolist()) == {ord("y")}


def test_packed_tokens_are_the_folders_and_are_mapped(tmp_path: Path) -> None:
    source, packed = texts(tmp_path / "t"), tmp_path / "p"
    assert main([str(source), str(packed)]) == 0
    plain, mapped = load_data(str(source), LIMIT), load_data(str(packed), LIMIT)
    assert torch.equal(plain.train, mapped.train)
    assert torch.equal(plain.validation, mapped.validation)
    assert plain.train_starts is not None and mapped.train_starts is not None
    assert torch.equal(plain.train_starts, mapped.train_starts)
    with (packed / "train.tokens").open("r+b") as file:
        file.write(b"#")
    with (packed / "train.tokens").open("rb") as file:
        assert file.read(1) == b"#" and mapped.train[0] == ord("#"), "a map, not a copy"


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    documents = [torch.tensor([5, 70_000]), torch.tensor([1, 2, 3])]
    counts = write_packed(tmp_path, {"train": documents, "validation": documents[:1]}, 100_000)
    assert counts == {"train": 5, "validation": 2}
    corpus = load_data(str(tmp_path), LIMIT)
    assert corpus.train.tolist() == [5, 70_000, 1, 2, 3] and corpus.vocabulary == 100_000
    assert corpus.train_starts is not None and corpus.train_starts.tolist() == [0, 2]
    assert vocabulary_of(str(tmp_path)) == 100_000


def test_what_is_packed_half_is_not_taken_for_packed(tmp_path: Path) -> None:
    """Also where a folder was packed before: its four bytes would be read as four tokens of one."""
    some = [torch.tensor([1, 2, 3])]
    write_packed(tmp_path, {"train": some, "validation": some})

    def broken() -> Iterator[torch.Tensor]:
        yield torch.tensor([70_000])
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_packed(tmp_path, {"train": broken(), "validation": some}, 100_000)
    assert not (tmp_path / "tokens.json").exists()


def test_the_first_token_of_a_document_is_no_target() -> None:
    tokens, starts = torch.arange(21), torch.tensor([0, 3, 8, 20])
    sampler = WindowSampler(tokens, 4, 5, starts=starts)
    inputs, targets = sampler.batch(0)
    uncounted = inputs[targets == -100] + 1
    assert sorted(uncounted.tolist()) == [3, 8, 20]
    rest = targets != -100
    assert torch.equal(targets[rest], inputs[rest] + 1)


def test_refusals_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no such folder"):
        load_data(str(tmp_path / "no"), LIMIT)
    with pytest.raises(Refusal, match="no file of text"):
        load_data(str(tmp_path), LIMIT)
    (tmp_path / "a.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(Refusal, match=r"a\.txt is none, one of 1 such"):
        load_data(str(tmp_path), LIMIT)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(Refusal, match="no file of text"):
        load_data(str(tmp_path / "empty.txt"), LIMIT)
    (tmp_path / "tokens.json").write_text(json.dumps({"vocabulary": 9, "dtype": "int32"}))
    (tmp_path / "train.tokens").write_bytes(b"123")
    with pytest.raises(Refusal, match="3 bytes"):
        load_data(str(tmp_path), LIMIT)
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(Refusal, match=r"tokens\.json"):
        load_data(str(tmp_path), LIMIT)


def test_a_hugging_face_data_set(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = [f"row {number}" for number in range(30)]
    datasets.Dataset.from_dict({"text": rows}).save_to_disk(str(tmp_path / "text"))
    corpus = load_data(str(tmp_path / "text"), LIMIT)
    assert bytes(corpus.validation.tolist()) == b"row 0row 10row 20" and corpus.vocabulary == 256
    ids = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3], [4, 999]]})
    both = datasets.DatasetDict({"train": ids, "test": ids})
    both.save_to_disk(str(tmp_path / "ids"))
    corpus = load_data(str(tmp_path / "ids"), LIMIT)
    assert corpus.train.tolist() == [1, 2, 3, 4, 999] and corpus.vocabulary == 1000


def test_without_the_library_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(Refusal, match="no library `datasets`"):
        load_data(str(tmp_path), LIMIT)
