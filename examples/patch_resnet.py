"""ResNet-50 with its convolutions computed by alexconv: outputs compared with float64, times in a CUDA graph.

    python examples/patch_resnet.py --precision fp32 --N 32

Batch norms are folded into the convolutions before them, and ReLUs are fused.  The plain model and the patched one run
in both layouts.  Needs torch and a GPU, but no weights: the model is built here, with random ones.
"""

import argparse
import copy
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import alexconv
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.options import command_line, exits_cleanly
from alexconv.planning.points import parse_batches
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # channels, blocks, stride
TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16}
LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1, and the shortcut around them (He, Zhang, Ren and Sun, CVPR 2016)."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, 4 * channels, 1, bias=False),
            nn.BatchNorm2d(4 * channels),
        )
        same = stride == 1 and inputs == 4 * channels
        around = nn.Conv2d(inputs, 4 * channels, 1, stride, bias=False)
        self.around = nn.Identity() if same else nn.Sequential(around, nn.BatchNorm2d(4 * channels))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return torch.relu(self.body(x) + self.around(x))


def resnet50() -> nn.Sequential:
    """The network, with random weights."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for channels, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(Bottleneck(inputs, channels, stride if block == 0 else 1))
            inputs = 4 * channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def graph_ms(model: nn.Module, x: Tensor) -> tuple[float, Tensor]:
    """Milliseconds of a replay of the captured model, and its output."""
    graph, begin, end = torch.cuda.CUDAGraph(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        model(x)
    with torch.cuda.graph(graph):
        y = model(x)
    graph.replay()
    begin.record()
    for _ in range(20):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 20, y


def compared(precision: str, N: int, *, fuse: bool) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds for N images and largest error over the largest output, by contender and layout."""
    torch.manual_seed(0)
    torch.backends.cudnn.conv.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    plain = resnet50().cuda().eval()
    images = torch.rand((N, 3, 224, 224), device="cuda")
    exact = copy.deepcopy(plain).double()(images[:4].double())
    ms, error = {}, {}
    for layout, memory in LAYOUTS.items():
        model, x = (moved.to(TYPES[precision], memory_format=memory) for moved in (copy.deepcopy(plain), images))
        patched = copy.deepcopy(model)
        alexconv.patch(patched, precision, fuse=fuse)
        for who, network in (("torch", model), ("alexconv", patched)):
            name = f"{who}-{layout}"
            ms[name], y = graph_ms(network, x)
            error[name] = float((y[:4].double() - exact).abs().max() / exact.abs().max())
    return ms, error


@exits_cleanly
def main() -> int:
    """Builds, patches, compares; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--precision", default="fp32", help=f"error classes, of {', '.join(TYPES)} (default: fp32)")
    add("--N", default="32", help="batch sizes, as in 1,32 (default: 32)")
    add("--plain", action="store_true", help="leave batch norms and ReLUs to torch")
    add("--out", type=Path, metavar="FILE", help="append a record of each comparison to FILE")
    chosen = options.parse_args()
    precisions, batches = chosen.precision.split(","), parse_batches(chosen.N)
    if unknown := set(precisions) - TYPES.keys():
        options.error(f"--precision takes {', '.join(TYPES)}, not {', '.join(sorted(unknown))}")
    torch.backends.cudnn.benchmark = True
    file, headers = recorded(chosen.out) if chosen.out else (None, {})
    for precision in precisions:
        for N in batches:
            with torch.no_grad():
                ms, error = compared(precision, N, fuse=not chosen.plain)
            for name in ms:
                errors = f"largest error / largest output {error[name]:.1e}"
                print(f"{precision}  N={N:<3}  {name:14} {ms[name]:8.3f} ms  {errors}", flush=True)
            if file:
                facts = {"model": "ResNet-50", "N": N, "precision": precision, "fused": not chosen.plain}
                file.header("library-model", {**headers, **facts, "graph_ms": ms, "error": error})
    return 0


def recorded(path: Path) -> tuple[RecordFile, Record]:
    """A record file, and the keys of its headers for this run."""
    executor, file = CudaExecutor(), RecordFile(path)
    headers = environment.write_headers(file, executor.header(), command_line("examples/patch_resnet.py", None))
    executor.leave()
    return file, headers


if __name__ == "__main__":
    sys.exit(main())
