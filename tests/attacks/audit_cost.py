import json
import time

from alexconv.executors import choose_executor
from alexconv.executors.cuda import buffers
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.points import choose_rungs, choose_transfers, expand

ex = choose_executor("cuda")
rungs = "direct-register,channels-vector,channels-atomic,tiled,unroll-register-matmul,igemm,mma,wgmma"
points = expand("alexnet", (1, 2, 3), (128,), choose_rungs(rungs), choose_transfers("pageable"), {})
points += expand("alexnet", (2,), (1,), choose_rungs("igemm,mma,wgmma"), choose_transfers("pageable"), {})
points += expand("alexnet", (3,), (128,), choose_rungs("igemm,wgmma-split"), choose_transfers("streamed"), {})
runner = Runner(ex, points, Settings(baseline=False))
whole, once = buffers.time_on_device, buffers.time_once


class NoAudit:
    def __init__(self, *a, **k):
        self.suspects = []

    def finish(self):
        return {}


def plain(executor, pieces, seconds, audit=None):
    return buffers.repeat(lambda: once(executor, pieces, None, []), seconds)


AUDIT, GUARDS = buffers.Audit, buffers.CudaBuffers.check_guards
for p in points:
    runner.ready([p])
    try:
        ex.build(runner.plan(p).bound)
    except Exception:
        pass
total = {True: 0.0, False: 0.0}
out = []
for p in points:
    runner.ready([p])
    row = {"point": p.label()}
    for audited in (False, True):
        if audited:
            buffers.time_on_device, buffers.Audit, buffers.CudaBuffers.check_guards = whole, AUDIT, GUARDS
        else:
            buffers.time_on_device, buffers.Audit, buffers.CudaBuffers.check_guards = plain, NoAudit, lambda self: None
        t = time.time()
        r = runner.record(p)
        d = time.time() - t
        if r["status"] == "skipped":
            continue
        total[audited] += d
        s = r.get("samples") or {}
        med = {k: sorted(v)[len(v) // 2] for k, v in s.items() if v}
        row["on" if audited else "off"] = [
            round(d, 3),
            r["status"],
            (r["reason"] or "")[:120],
            med.get("kernel"),
            med.get("kernel_cold"),
            len(s.get("kernel", [])),
        ]
        if audited:
            row["audit"] = r.get("audit")
    out.append(row)
    print(json.dumps(row), flush=True)
print("wall off, on, ratio", total[False], total[True], total[True] / total[False])
