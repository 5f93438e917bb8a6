"""``python -m dev.bench [NAME …] [OPTIONS]``: run the benchmarks, all of them by default.

Options go to the one benchmark that is named: ``python -m dev.bench scale --count 1000``.
"""

import importlib
import pkgutil
import sys
from pathlib import Path


def main(wanted: list[str]) -> int:
    """Run benchmarks sequentially.

    Parameters
    ----------
    wanted
        Names of modules of this package, empty = all; after a single one its own options.

    Returns
    -------
    int
        Exit code: 0; 1 = a benchmark missed its target; 2 = a name is unknown.
    """
    names = sorted(
        module.name
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if not module.name.startswith("_")
    )
    end = next((place for place, word in enumerate(wanted) if word.startswith("-")), len(wanted))
    wanted, options = wanted[:end], wanted[end:]
    if options and len(wanted) != 1:
        print("options need the name of exactly one benchmark", file=sys.stderr)
        return 2
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; available: {', '.join(names)}", file=sys.stderr)
        return 2
    missed = 0
    for name in wanted or names:
        print(f"== {name}")
        arguments = (options,) if options else ()
        missed |= bool(importlib.import_module(f"dev.bench.{name}").main(*arguments))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
