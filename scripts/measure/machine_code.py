"""Records source, machine code and predicted cycles of some rungs, for their pages; needs nvcc and nvdisasm.

python scripts/measure/machine_code.py          into results/predicted/machine-code.json.xz
"""

import json
import lzma
from pathlib import Path

from alexconv.compiling import nvcc
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.rung import FOLDER
from alexconv.planning.points import Point
from alexconv.predict import gpu
from alexconv.predict.predictions import KernelCache, costs, predict_points
from alexconv.predict.tables import guarded
from alexconv.records.store import Record
from alexconv.shapes import WORKLOADS

OUT = Path(__file__).resolve().parents[2] / "results" / "predicted" / "machine-code.json.xz"
RUNGS = ("direct", "direct-register", "igemm-async", "wgmma-half")
GPU = "h200"
AXES: Record = {"workload": "alexnet", "layer": 3, "N": 128, "transfer": "pageable"}


def listing(name: str, cache: KernelCache) -> Record:
    """A rung's instructions by kernel: text, per cent of the launch's warp cycles, source file and line."""
    chosen, rung = gpu.load(GPU), LADDER.named[name]
    conv = WORKLOADS[AXES["workload"]].layer(AXES["layer"])
    point = Point.from_axes({**AXES, "rung": name, "constants": rung.resolve(conv, {}, AXES["N"], chosen.device)})
    (prediction,) = predict_points([point], chosen, cache)
    if prediction.reason:
        raise SystemExit(f"{name}: {prediction.reason}")
    compiled, kernels = cache(prediction.bound, prediction.gpu), {}
    for launch in prediction.launches:
        kernel = compiled[launch.entry]
        rows = zip(kernel.code, costs(kernel, launch), strict=True)
        kernels[launch.entry] = [[guarded(code), round(100 * cost.cycles, 3), cost.place] for code, cost in rows]
    places = {place.partition(":")[0] for rows in kernels.values() for *_, place in rows}
    files = {path.name: path.read_text() for path in sorted(FOLDER.rglob("*.cu*")) if path.name in places}
    return {"layer": AXES["layer"], "N": AXES["N"], "kernels": kernels, "files": files}


def main() -> None:
    """Writes the file."""
    cache = KernelCache()
    facts = {"command": "python scripts/measure/machine_code.py", "gpu": GPU, "nvcc": nvcc.nvcc_version()}
    text = json.dumps({**facts, "rungs": {name: listing(name, cache) for name in RUNGS}})
    OUT.write_bytes(lzma.compress(text.encode()))


if __name__ == "__main__":
    main()
