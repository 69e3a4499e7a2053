"""The trusted process: pytest over one suite, and a report of each check as it ends."""

from __future__ import annotations

import os
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from course_lib.grade.checks import CheckFailed
from course_lib.grade.faults import LOAD, RunFault
from course_lib.grade.judge.bench import Bench
from course_lib.grade.judge.terms import Subject
from course_lib.grade.judge.trial import RankLost
from course_lib.grade.suite.run import Run
from course_lib.ranks.start.channel import Channel
from course_lib.ranks.start.forkserver import ForkServer, ServerDied
from course_lib.ranks.system.processes import PROCESSES

# Plugins of pytest itself that do nothing here; one collects garbage for 0.3 s at the end.
UNUSED = (
    "cacheprovider",
    "unraisableexception",
    "threadexception",
    "faulthandler",
    "doctest",
    "junitxml",
    "stepwise",
    "pastebin",
    "unittest",
    "setuponly",
    "logging",
)
SPARE_PROCESSES = 256  # of this user, beyond those that run now


def main(_: dict[str, Any], fds: list[int]) -> None:
    """Runs as a forked child of the preloaded process.

    Args:
        _: nothing; suite, seed, folder and the fields of `Subject` come over the first channel.
        fds: the channel for reports, and the channel to the server for forking ranks.
    """
    sys.dont_write_bytecode = True
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]  # options and plugins for the user's own tests
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    report = Channel.from_fd(fds[0])
    args = report.receive()[0]
    subject = Subject(**{**args["subject"], "processes": _process_limit()})
    sys.path.append(subject.root)  # what suites import lies in grading/ of the course
    server = ForkServer(Channel.from_fd(fds[1]))
    scorer = Scorer(Bench(server, subject, args["seed"], args["folder"]), report)
    code = pytest.main(_options(args), plugins=[scorer])
    report.send({"event": "end", "code": int(code), "stop": scorer.stop})


def _options(args: dict[str, Any]) -> list[str]:
    """Nothing of the user's: no configuration, no conftest, no plugins, no cache."""
    suite = Path(args["subject"]["suite"])
    return [
        str(suite),
        "-c",
        os.devnull,
        "--rootdir",
        str(suite.parent),
        "--noconftest",
        "-q",
        "-q",
        *(word for name in UNUSED for word in ("-p", f"no:{name}")),
        "--assert=plain",
        "--import-mode=importlib",
        "--tb=native",
        "--capture=no",
        "-o",
        "python_files=*.py",
        "-o",
        "python_functions=check_*",
        "-o",
        "python_classes=",
    ]


def _process_limit() -> int:
    """RLIMIT_NPROC for the ranks: what this user runs now and some more; 0 for root."""
    if os.getuid() == 0:
        return 0
    count = PROCESSES.count(os.getuid())
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    return count + SPARE_PROCESSES if hard < 0 else min(hard, count + SPARE_PROCESSES)


class Scorer:
    """A pytest plugin: gives checks their fixture, and reports how each ended.

    Args:
        bench: what the checks share.
        report: where reports go.

    Attributes:
        stop: the fault that ended the grading before its last check, as data; or None.
    """

    def __init__(self, bench: Bench, report: Channel) -> None:
        self._bench, self._report = bench, report
        self.stop: dict[str, Any] | None = None

    @pytest.fixture
    def run(self) -> Any:
        """The fixture that a check takes."""
        run = Run(self._bench)
        yield run
        run.close_folders()

    def pytest_collectreport(self, report: Any) -> None:
        """A suite that cannot be imported is the grader's fault."""
        if report.failed:
            self._report.send({"event": "broke", "why": str(report.longrepr)[-3000:]})

    def pytest_internalerror(self, excrepr: Any) -> None:
        """So is an error of pytest itself."""
        self._report.send({"event": "broke", "why": str(excrepr)[-3000:]})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """Reports a check that has run, and stops where the others would say the same."""
        outcome = yield
        if call.when == "call" or call.excinfo is not None:
            self._say(item, call)
        return outcome

    def _say(self, item: Any, call: Any) -> None:
        run = item.funcargs.get("run")
        error = call.excinfo.value if call.excinfo else None
        record = {
            "event": "check",
            "name": item.function.__name__,
            "passed": error is None,
            "seconds": round(call.duration, 3),
            "figure": run.figure if run is not None and error is None else None,
        }
        if isinstance(error, ServerDied):
            self._report.send({"event": "lost"})
            item.session.shouldstop = "the preloaded process has ended"
            return
        if error is not None:
            record.update(self._failure(error, run))
        self._report.send(record)
        fault = record.get("fault")
        if fault is not None and self._ends_all(fault["kind"]):
            self.stop = fault
            item.session.shouldstop = fault["message"]

    def _ends_all(self, kind: str) -> bool:
        one = len(self._bench.subject.defines) == 1
        return kind in LOAD or kind == "tampering" or (kind == "not_written" and one)

    @staticmethod
    def _failure(error: BaseException, run: Run | None) -> dict[str, Any]:
        printed = run.results[-1].printed if run and run.results else ""
        if isinstance(error, CheckFailed):
            return {
                "message": error.message,
                "rank": error.rank,
                "expected": error.expected,
                "measured": error.measured,
                "cause": error.cause,
                "printed": printed,
            }
        if isinstance(error, RunFault):
            return {
                "fault": error.fault.to_dict(),
                "message": error.fault.message,
                "printed": error.output,
            }
        text = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))[-3000:]
        if run is not None and run.results and not isinstance(error, RankLost):
            return {
                "message": "what came back cannot be read by this check",
                "printed": printed,
                "measured": text,
                "cause": "does the function return what was asked?",
                "internal": trace,
            }
        return {
            "message": "the check itself failed",
            "measured": text,
            "internal": trace,
            "broke": True,
        }
