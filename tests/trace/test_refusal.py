"""The one form of a refusal: its fields, its text, and that it arrives whole elsewhere."""

from __future__ import annotations

import copy
import pickle

import cloudpickle
import pytest

from course_lib.checkpoint import CheckpointError
from course_lib.comm import CommError
from course_lib.model import ModelConfig
from course_lib.parallel import OutOfMemory, TornFile
from course_lib.ranks.hosts.hosts import HostsError
from course_lib.schedule import Action, ScheduleError
from course_lib.trace import Refusal
from course_lib.train import ConfigError, RunConfig, check

KINDS = [Refusal, CommError, CheckpointError, OutOfMemory, TornFile, ScheduleError, HostsError]


@pytest.mark.parametrize("kind", KINDS)
def test_fields_and_text(kind: type[Refusal]) -> None:
    error = kind("a ring of 3", "2 ranks", "each member is a rank")
    assert (error.asked, error.found, error.why) == (
        "a ring of 3",
        "2 ranks",
        "each member is a rank",
    )
    assert str(error) == "asked: a ring of 3\nfound: 2 ranks\nwhy: each member is a rank"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sent",
    [
        lambda error: pickle.loads(pickle.dumps(error)),
        lambda error: pickle.loads(cloudpickle.dumps(error)),
        copy.copy,
        copy.deepcopy,
    ],
    ids=["pickle", "cloudpickle", "copy", "deepcopy"],
)
def test_it_arrives_whole(kind: type[Refusal], sent: object) -> None:
    assert callable(sent)
    for error in (kind("a", "b", "c"), kind(asked="a", found="b", why="c")):
        there = sent(error)
        assert type(there) is kind and str(there) == str(error)
        assert (there.asked, there.found, there.why) == ("a", "b", "c")


def test_two_are_caught_as_torch_would_raise_them() -> None:
    for kind in (OutOfMemory, TornFile):
        with pytest.raises(RuntimeError, match="found: b"):
            raise kind("a", "b", "c")


def test_a_checkpoint_s_fields_are_one_short_line_each() -> None:
    error = CheckpointError("read\nthis", "x" * 5000, "why\t not")
    assert (error.asked, error.why) == ("read this", "why not")
    assert error.found == "x" * 1000 + "..."
    assert pickle.loads(pickle.dumps(error)).found == error.found


def test_a_run_that_cannot_work_has_all_its_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        check(RunConfig(tp=3, heads=4, batch=7, dp=2))
    error = caught.value
    assert [type(problem) for problem in error.problems] == [Refusal, Refusal]
    assert (error.asked, error.found) == ("tp 3", "4 query and 4 key-value heads")
    assert str(error).startswith("\n".join(str(problem) for problem in error.problems))
    assert error.nearest is not None and error.nearest.command() in str(error)
    there = pickle.loads(pickle.dumps(error))
    assert str(there) == str(error) and there.nearest == error.nearest
    assert (there.asked, there.found, there.why) == (error.asked, error.found, error.why)


def test_what_the_rooms_say() -> None:
    """Noun or verb alone: the label is the form's, not the text's."""
    with pytest.raises(Refusal) as caught:
        ModelConfig(hidden=64, heads=3)
    assert caught.value.asked == "3 heads and 4 key-value heads"
    assert caught.value.found == "a width of 64"
    with pytest.raises(ScheduleError) as caught:
        Action.parse("F0")
    assert str(caught.value).startswith("asked: ") and "found: 'F0'" in str(caught.value)
