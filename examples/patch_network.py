"""A network of torchvision with its convolutions computed by alexconv: outputs compared with float64, times in a graph.

    python examples/patch_network.py resnet18 --precision fp16 --N 32

The model has torchvision's random weights.  Needs torch, torchvision and a GPU.
"""

import argparse
import copy
import sys

import torch
from torchvision import models

import alexconv
from alexconv.options import exits_cleanly

TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16}
LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
REPLAYS = 20


def graph_ms(model: torch.nn.Module, x: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Milliseconds of a replay of the captured model, and its output."""
    graph, begin, end = torch.cuda.CUDAGraph(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        model(x)
    with torch.cuda.graph(graph):
        y = model(x)
    graph.replay()
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / REPLAYS, y


@exits_cleanly
def main() -> int:
    """Builds, patches, compares; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("network", help="torchvision's name of a model, as in resnet18")
    options.add_argument("--precision", default="fp32", choices=TYPES, help="error class (default: fp32)")
    options.add_argument("--N", default=32, type=int, help="batch size (default: 32)")
    chosen = options.parse_args()
    if chosen.network not in models.list_models(module=models):
        options.error(f"torchvision has no model {chosen.network}")
    precision, dtype = chosen.precision, TYPES[chosen.precision]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.conv.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    torch.manual_seed(0)
    plain = models.get_model(chosen.network, weights=None).cuda().eval()
    images = torch.rand((chosen.N, 3, 224, 224), device="cuda")
    with torch.no_grad():
        exact = copy.deepcopy(plain).double()(images[:4].double())
        for layout, memory in LAYOUTS.items():
            model, x = (moved.to(dtype, memory_format=memory) for moved in (copy.deepcopy(plain), images))
            patched = copy.deepcopy(model)
            alexconv.patch(patched, precision, fuse=True)
            for name, network in (("torch", model), ("alexconv", patched)):
                ms, y = graph_ms(network, x)
                error = float((y[:4].double() - exact).abs().max() / exact.abs().max())
                print(f"{name:8} {layout}  {ms:8.3f} ms  largest error / largest output {error:.1e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
