"""Run by rekey.py on the tree of commit 4ad6089: the keys that it gives to points, and what it runs for them.

Standard input is a JSON list of point records with ``device`` and ``command`` in the headers' place.  Standard output
is a list with, for each, its ``key``, its ``settings`` and its ``kernels``, each with all that decides what runs.
"""

import json
import shlex
import sys
from dataclasses import asdict

from alexconv.launches import configure, configure_preparation
from alexconv.runner import Settings
from alexconv.together import PIECE_BYTES

from alexconv import nvcc, run, tune
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import defines, images_at_a_time
from alexconv.records import digest
from alexconv.shapes import WORKLOADS


def settings(command: str) -> Settings:
    """What the recorded command says about its points."""
    _, _, module, *words = shlex.split(command)
    if module == "alexconv.tune":
        return Settings(seed=tune.parser().parse_args(words).seed)
    options = run.parser().parse_args(words)
    return Settings(seed=options.seed, memory_budget=options.memory_budget, timed=not options.verify_only)


def layers(layer: object) -> list[int]:
    """Layer numbers of a point: 3, or several as in 1-5 or 1,3."""
    first, _, last = str(layer).partition("-")
    return list(range(int(first), int(last) + 1)) if last else [int(number) for number in first.split(",")]


def kernel(rung, conv, constants, images: int) -> dict:
    """What is compiled, and how it is launched, as ``BoundRung.launch_facts`` has it."""
    launches = configure_preparation(rung, conv, constants) + configure(rung, conv, images, constants)
    N = images_at_a_time(images, constants)
    arrays = [[array.name, array.nbytes(conv, N, constants)] for array in rung.scratch + rung.prepared]
    maps = []
    for each in rung.maps:
        window = each.window and each.window(conv, constants)
        numbers = [each.dims(conv, N, constants), each.strides(conv, N, constants), each.box(conv, constants), window]
        maps.append([each.name, each.array, *numbers])
    facts = [{**asdict(launch), "pdl": launch.early} for launch in launches]
    return {
        "source": str(rung.path),
        "macros": defines(conv, constants),
        "facts": [rung.dtype, rung.layout, rung.constant_symbol, facts, arrays, maps],
    }


def answered(record: dict) -> dict:
    """The key and the kernels of a record."""
    point, device = record["point"], record["device"]
    convs = WORKLOADS[point["workload"]].layers
    chosen = settings(record["command"])
    shared = chosen.key()
    nvcc.nvcc_version = lambda: device["toolkit"]

    def key(rung: str, layer: int, constants: dict) -> str:
        arch = nvcc.arch_name(tuple(device["compute_capability"]))
        compiled = nvcc.cubin_key(RUNGS[rung].path, defines(convs[layer - 1], constants), arch)
        return digest([compiled, device, shared, point["transfer"]])

    answer = {"settings": {"seed": chosen.seed, "memory_budget": chosen.memory_budget, "timed": chosen.timed}}
    if "peer" in record:
        own = [convs[layer - 1] for layer in layers(point["layer"])]
        sizes = [conv.sizes() | {"pad": conv.pad} for conv in own]
        versions = {name: record["peer"][name] for name in ("torch", "cudnn", "cuda")}
        return answer | {"key": digest([versions, device, shared, point["rung"], sizes]), "kernels": []}
    several = record.get("layers")
    planned = {
        "constants": record.get("planned_constants", point["constants"]),
        "images_per_piece": record.get("images_per_piece", point["N"]),
    }
    ran = several or [point | planned]
    if any(layer["rung"] not in RUNGS for layer in ran):
        return answer | {"key": None, "kernels": []}
    kernels = [
        kernel(RUNGS[each["rung"]], convs[each["layer"] - 1], each["constants"], each["images_per_piece"])
        for each in ran
    ]
    if several:  # with the constants that were planned, which are those that were chosen
        keys = [key(layer["rung"], layer["layer"], layer["constants"]) for layer in several]
        return answer | {"key": digest([PIECE_BYTES, *keys]), "kernels": kernels}
    return answer | {"key": key(point["rung"], point["layer"], point["constants"]), "kernels": kernels}


def answer(record: dict) -> dict:
    """What this version says about a record; no key for a later one, whose command or point it does not know."""
    try:
        return answered(record)
    except (SystemExit, LookupError):
        return {"settings": {}, "key": None, "kernels": []}


print(json.dumps([answer(record) for record in json.load(sys.stdin)]))
