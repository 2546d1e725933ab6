"""Makes auto's table of measured rungs.

python scripts/measure/auto_table.py results/networks/* results/h200-frontier.jsonl.xz results/h200-*networks-whole*

For each layer, N, precision and layout in the record files it keeps the fastest rung with its constants, unless auto's
estimates choose the same, or one slower by no more than TOLERATED, or unmeasured constants of that rung.  Another
unmeasured rung is trusted where its estimate is far below the measured times.  A stricter class's rungs serve too.

Files may also have records of type ``library-choices``, of rungs timed through Conv2d: where one has a layer, N and
precision, it counts in place of that precision's points, for its rungs' layout.  It has the times of calls in graphs,
which is what auto is for.  Of whole networks' records the products' stages count, each alone, for layers that have no
other times, with a border in memory neither, and of which several rungs were timed; of LEAST_US or more, as cards
differ in what events add to shorter ones.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import H200
from alexconv.networks.schedules import SCHEDULES
from alexconv.networks.tables import NETWORKS
from alexconv.precisions import PRECISIONS
from alexconv.records.store import Record, read
from alexconv.shapes import WORKLOADS, Conv
from alexconv.tune.auto import contenders
from alexconv.tune.estimate import estimate
from alexconv.tune.measured import TABLE, Request, name_of

CHOICES, NETWORK = "library-choices", "network"
TOLERATED = 1.02
LEAST_US = 30.0  # of a network's stage
TRUSTED = 0.7  # an estimate of an unmeasured rung, over the shortest measured time
Times = dict[str, tuple[float, BoundRung]]  # by rung and constants


def times(paths: Iterable[Path]) -> dict[tuple[Conv, int], Times]:
    """Median kernel times of the H200's points, by layer and N; the last of equal points counts."""
    measured: dict[tuple[Conv, int], Times] = defaultdict(dict)
    of_stages: dict[tuple[Conv, int], Times] = defaultdict(dict)
    records = read(list(paths))
    for record in records.points:
        point = record["point"]
        rung = RUNGS.get(point["rung"])
        if record["status"] != "ok" or rung is None or "layer" not in point:
            continue
        conv, constants = WORKLOADS[point["workload"]].layer(point["layer"]), rung.recorded(point["constants"])
        if set(constants) == {constant.name for constant in rung.constants}:
            name = json.dumps([rung.name, constants], sort_keys=True)
            measured[conv, point["N"]][name] = median(record["samples"]["kernel"]), BoundRung(rung, conv, constants)
    for record in records.headers.values():
        if record["type"] == CHOICES:
            take(measured[Conv(**record["conv"]), record["N"]], record)
        elif record["type"] == NETWORK and record["axes"]["network"] in NETWORKS:
            take_stages(of_stages, record)
    stored = {(replace(conv, pad=0), N) for conv, N in measured}
    untimed = [layer for layer in of_stages if (replace(layer[0].with_border(), pad=0), layer[1]) not in stored]
    return {layer: several(of_stages[layer]) for layer in untimed} | measured


def several(timed: Times) -> Times:
    """The times of precisions and layouts in which more than one rung was timed."""
    rungs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for _, bound in timed.values():
        rungs[bound.rung.precision, bound.rung.layout].add(bound.rung.name)
    return {
        name: timing
        for name, timing in timed.items()
        if len(rungs[timing[1].rung.precision, timing[1].rung.layout]) > 1
    }


def take_stages(measured: dict[tuple[Conv, int], Times], record: Record) -> None:
    """Adds the products of a network's record: layers without their bias and ReLU."""
    axes = record["axes"]
    if SCHEDULES[axes["schedule"]].stores_terms:  # stages leave a part of their work to the one before
        return
    layers = {stage.name: stage.shape.alone() for stage in NETWORKS[axes["network"]].stages}
    for stage in record.get("stages", ()):
        conv, rung = layers.get(stage["stage"]), RUNGS.get(stage["rung"])
        if conv is None or rung is None or "samples" not in stage:
            continue
        if (ms := median(stage["samples"]["kernel"])) < LEAST_US / 1e3:
            continue
        constants = rung.recorded(stage["constants"])
        if set(constants) == {constant.name for constant in rung.constants}:
            name = json.dumps([rung.name, constants], sort_keys=True)
            measured[conv, axes["N"]][name] = ms, BoundRung(rung, conv, constants)


def take(measured: Times, record: Record) -> None:
    """Puts the choices of a layer in place of the points of their precision and layout."""
    conv, timed = Conv(**record["conv"]), {}
    for choice, ms in record["graph_ms"].items():
        if choice.startswith("["):  # others are cuDNN's
            name, pairs = json.loads(choice)
            if (rung := RUNGS.get(name)) is None:
                continue
            constants = rung.recorded(dict(pairs))
            if set(constants) == {constant.name for constant in rung.constants}:
                timed[json.dumps([name, constants], sort_keys=True)] = ms, BoundRung(rung, conv, constants)
    layouts = {bound.rung.layout for _, bound in timed.values()}
    for name, (_, bound) in list(measured.items()):
        if bound.rung.layout in layouts and bound.rung.precision == record["precision"]:
            del measured[name]
    measured.update(timed)


def entries(conv: Conv, N: int, measured: Times) -> Iterable[tuple[str, float, BoundRung]]:
    """Name, ms and rung of the fastest, for each precision and layout in which the estimates choose a slower one."""
    for precision in PRECISIONS:
        served = {precision, *PRECISIONS[precision].stricter}
        for layout in dict.fromkeys(bound.rung.layout for _, bound in measured.values()):
            known = {
                name: timing
                for name, timing in measured.items()
                if timing[1].rung.layout == layout and timing[1].rung.precision in served
            }
            if not known:
                continue
            best = min(known.values(), key=lambda timing: timing[0])
            rungs = [rung for rung in LADDER if rung.precision in served and rung.layout == layout]
            chosen = next(iter(contenders(H200, conv, N, rungs, 1)), None)
            name = json.dumps([chosen.rung.name, dict(chosen.constants)], sort_keys=True) if chosen else ""
            if name in known:
                slower = known[name][0] > TOLERATED * best[0]
            else:
                other_rung = chosen is None or chosen.rung is not best[1].rung
                slower = other_rung and (chosen is None or estimate(chosen, N) > TRUSTED * 1e3 * best[0])
            if slower:
                yield name_of(Request(conv, N, precision, layout)), *best


def table_text(paths: Iterable[Path]) -> str:
    """The table as text."""
    choices = {
        name: {"rung": bound.rung.name, "us": round(1e3 * ms, 1), "constants": dict(bound.constants)}
        for (conv, N), measured in times(paths).items()
        for name, ms, bound in entries(conv, N, measured)
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(choices[name])}" for name in sorted(choices))
    return f'{{"{H200.name}": {{\n{lines}\n}}}}\n'


def main(arguments: Sequence[str]) -> int:
    """Writes the table."""
    if not arguments:
        print("usage: python scripts/measure/auto_table.py RECORDS...", file=sys.stderr)
        return 2
    TABLE.write_text(table_text(map(Path, arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
