"""`python -m benchmarks [NAME ...] [--json] [--write]`: runs benchmarks and shows their rows."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from types import ModuleType

import benchmarks
from benchmarks import results
from benchmarks.row import Row, table


def found() -> dict[str, ModuleType]:
    """Name to module of every benchmark: the modules here and in folders that have `rows`."""
    paths = [info.name for info in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]
    modules = {p.split(".")[-1]: importlib.import_module(p) for p in paths if p[-2:] != "__"}
    there = sorted(name for name, module in modules.items() if hasattr(module, "rows"))
    there.sort(key=lambda name: name == "goals")  # last: it reads what the others have written
    return {name: modules[name] for name in there}


def run(name: str, module: ModuleType, *, as_json: bool, write: bool) -> None:
    """Runs one benchmark; rows appear as they are measured with `as_json`, else as a table."""
    rows: list[Row] = []
    for row in module.rows():
        rows.append(row)
        if as_json:
            print(row.to_json(), flush=True)
        else:
            print(f"\r{name}: {len(rows)} measured", end="", file=sys.stderr, flush=True)
    text = table(rows)
    if not as_json:
        print(file=sys.stderr)
        print(f"{name}\n{text}\n", flush=True)
    if write and rows:  # a section that could not be measured stays as it was
        results.write(name, module.__doc__ or "", text)


def main() -> int:
    """Runs the benchmarks named on the command line, or all."""
    modules = found()
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(modules))
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    wanted = parser.parse_args()
    unknown = sorted(set(wanted.names) - set(modules))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(modules)}")
    for name in wanted.names or modules:
        run(name, modules[name], as_json=wanted.json, write=wanted.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
