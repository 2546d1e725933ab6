"""What auditing the timed launches costs: points of an H200's main job with and without it, in turn.

python scripts/audit_cost.py results/h200-audit.jsonl

A line per point: seconds of wall time, medians of the kernel's hot and cold samples, without and with the audit, and
what the audit found.
"""

import json
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

from alexconv.executors import choose_executor
from alexconv.executors.cuda import buffers, timing
from alexconv.executors.sampling import repeat
from alexconv.measuring.runner import Runner, Settings, Skip
from alexconv.planning.points import choose_rungs, choose_transfers, expand
from alexconv.records import environment
from alexconv.records.statistics import median_of
from alexconv.records.store import Record, RecordFile

RUNGS = "direct-register,channels-vector,channels-atomic,tiled,unroll-register-matmul,family:igemm,mma,wgmma"
SMALL = "igemm,mma,wgmma"


class Unaudited:
    """Stands in for an audit, and does nothing."""

    suspects: tuple[()] = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def finish(self) -> Record:
        """No findings."""
        return {}


def unaudited(executor: Any, pieces: Any, seconds: float, audit: object = None) -> Any:
    """As time_on_device, without audit and second clock."""
    return repeat(timing.rested(partial(timing.time_once, executor, pieces, None, [])), seconds)


def without_audit() -> Any:
    """The executor without its audit."""
    return mock.patch.multiple(buffers, Audit=Unaudited, time_on_device=unaudited)


def main(out: Path) -> int:
    """Measures and writes."""
    executor = choose_executor("cuda")
    pageable, streamed = choose_transfers("pageable"), choose_transfers("streamed")
    points = expand("alexnet", (1, 2, 3), (128,), choose_rungs(RUNGS), pageable, {})
    points += expand("alexnet", (3,), (1,), choose_rungs(SMALL), pageable, {})
    points += expand("alexnet", (3,), (128,), choose_rungs("family:igemm,wgmma-split"), streamed, {})
    runner = Runner(executor, points, Settings(baseline=False))
    file = RecordFile(out)
    environment.write_headers(file, executor.header(), "python scripts/audit_cost.py")
    for point in points:
        with suppress(Skip):
            executor.build(runner.plan(point).bound)
            runner.ready([point])
            found = {}
            for name in ("without", "with"):
                begin = perf_counter()
                if name == "with":
                    record = runner.record(point)
                else:
                    with without_audit(), mock.patch.object(buffers.CudaBuffers, "check_guards", lambda self: None):
                        record = runner.record(point)
                figures = {figure: median_of(record, figure) for figure in ("kernel", "kernel_cold")}
                found[name] = {"seconds": round(perf_counter() - begin, 4), "status": record["status"], **figures}
            facts = {"point": point.axes(), **found, "audit": record.get("audit"), "reason": record["reason"]}
            print(json.dumps(facts), flush=True)
            file.header("audit", facts)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
