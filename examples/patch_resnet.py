"""ResNet-50 with its convolutions computed by alexconv: outputs beside float64, times in a CUDA graph.

    python examples/patch_resnet.py --precision fp32 --N 32

Batch norms are folded into the convolutions before them, whose ReLUs are computed with them.  Needs torch and a GPU,
and no weights: the model is built here, with random ones.
"""

import argparse
import copy

import torch
from torch import Tensor, nn

import alexconv

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # channels, blocks, stride
TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16}


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1, and the way around them (He, Zhang, Ren and Sun, CVPR 2016)."""

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


def main() -> None:
    """Builds, patches, compares."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--precision", default="fp32", choices=TYPES)
    options.add_argument("--N", type=int, default=32)
    options.add_argument("--plain", action="store_true", help="batch norms and ReLUs stay torch's")
    chosen = options.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.conv.fp32_precision = "tf32" if chosen.precision == "tf32" else "ieee"
    last = torch.channels_last if chosen.precision == "fp16" else torch.contiguous_format
    model = resnet50().cuda().eval()
    x = torch.rand((chosen.N, 3, 224, 224), device="cuda")
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x[:4].double())
        model, x = (
            model.to(TYPES[chosen.precision], memory_format=last),
            x.to(TYPES[chosen.precision], memory_format=last),
        )
        patched = copy.deepcopy(model)
        alexconv.patch(patched, chosen.precision, fuse=not chosen.plain)
        for name, each in (("torch", model), ("alexconv", patched)):
            ms, y = graph_ms(each, x)
            error = float((y[:4].double() - exact).abs().max() / exact.abs().max())
            print(f"{name:8}  {ms:8.3f} ms for {chosen.N} images  largest error / largest output {error:.1e}")


if __name__ == "__main__":
    main()
