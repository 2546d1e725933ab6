"""Trains a network with torch's convolutions and with alexconv's, and compares losses and the time of a step.

    python examples/train_network.py --model digits --precision fp32,fp16
    python examples/train_network.py --model resnet18 --precision fp32,fp16 --N 64

digits: a small network on scikit-learn's digits, from the same weights and with the same batches: the loss of every
step, the accuracy on images that it has not seen, and whether a second training has the same bits.  resnet18: the time
of a whole step (forward, backward, SGD) on random images, in a CUDA graph.  fp16 is torch.autocast with fp32
parameters, and losses scaled by a constant.  Needs torch, a GPU, and for the digits scikit-learn.
"""

import argparse
import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import alexconv
from alexconv.accuracy.network import CLASSES, HELD_OUT, WORKLOAD, digits
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.options import command_line, exits_cleanly
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile

EPOCHS, BATCH, RATE, SCALED = 6, 32, 0.01, 1024.0
CONTENDERS = ("torch", "alexconv")
LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride


class Basic(nn.Module):
    """Two 3 x 3 layers, and the shortcut around them (He, Zhang, Ren and Sun, CVPR 2016)."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        around = nn.Conv2d(inputs, channels, 1, stride, bias=False)
        same = stride == 1 and inputs == channels
        self.around = nn.Identity() if same else nn.Sequential(around, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return torch.relu(self.body(x) + self.around(x))


def resnet18() -> nn.Sequential:
    """The network, with random weights."""
    stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    blocks, inputs = [], 64
    for channels, stride in STAGES:
        blocks += [Basic(inputs, channels, stride), Basic(channels, channels, 1)]
        inputs = channels
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def lenet() -> nn.Sequential:
    """The network of ``alexconv.accuracy``, untrained and with biases."""
    blocks: list[nn.Module] = []
    for conv in WORKLOAD.layers:
        blocks += [nn.Conv2d(conv.C, conv.M, (conv.R, conv.S)), nn.ReLU(), nn.MaxPool2d(2)]
    last = WORKLOAD.layers[-1]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(last.M * (last.E // 2) * (last.F // 2), CLASSES))


def contender(
    model: nn.Module, who: str, precision: str
) -> tuple[nn.Module, Callable[[], AbstractContextManager[Any]]]:
    """A copy of a model, patched for alexconv, and the context in which it runs."""
    halves = precision == "fp16"
    torch.backends.cudnn.conv.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    model = copy.deepcopy(model)
    if who == "alexconv":
        alexconv.patch(model, precision, autocast=halves, say=lambda line: None)
    return model, lambda: torch.autocast("cuda", torch.float16) if halves else nullcontext()


def loss_of(model: nn.Module, context: Callable[[], Any], x: Tensor, labels: Tensor) -> Tensor:
    """The cross entropy of a batch."""
    with context():
        scores = model(x)
    loss: Tensor = nn.functional.cross_entropy(scores.float(), labels)
    return loss


def learn(model: nn.Module, context: Callable[[], Any], optimizer: Any, x: Tensor, labels: Tensor) -> Tensor:
    """A step; returns the loss."""
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(model, context, x, labels)
    (loss * SCALED).backward()
    optimizer.step()
    return loss.detach()


def optimizer_of(model: nn.Module) -> torch.optim.SGD:
    """SGD with momentum, its rate over the constant that scales losses."""
    return torch.optim.SGD(model.parameters(), RATE / SCALED, momentum=0.9)


def trained(plain: nn.Module, who: str, precision: str, images: Tensor, labels: Tensor) -> tuple[list[float], float]:
    """The loss of each step, and the accuracy on the images held out."""
    model, context = contender(plain, who, precision)
    optimizer, losses = optimizer_of(model), []
    order = torch.Generator().manual_seed(1)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images) - HELD_OUT, generator=order).split(BATCH):
            losses.append(learn(model, context, optimizer, images[batch], labels[batch]))
    with torch.no_grad(), context():
        guesses = model(images[-HELD_OUT:]).argmax(1)
    return torch.stack(losses).tolist(), float((guesses == labels[-HELD_OUT:]).float().mean())


def step_ms(plain: nn.Module, who: str, precision: str, x: Tensor, labels: Tensor, layout: str) -> float:
    """Milliseconds of a captured step."""
    model, context = contender(plain.to(memory_format=LAYOUTS[layout]), who, precision)
    x, optimizer = x.contiguous(memory_format=LAYOUTS[layout]), optimizer_of(model)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            learn(model, context, optimizer, x, labels)
    torch.cuda.synchronize()
    graph, begin, end = torch.cuda.CUDAGraph(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        learn(model, context, optimizer, x, labels)
    graph.replay()
    begin.record()
    for _ in range(10):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end) / 10)


def measured(model: str, precision: str, N: int, layouts: list[str]) -> Iterator[tuple[str, Record]]:
    """What each contender's training gives."""
    torch.manual_seed(0)
    if model == "digits":
        images, labels = (torch.from_numpy(values).cuda() for values in digits())
        plain = lenet().cuda()
        for who in CONTENDERS:
            losses, accuracy = trained(plain, who, precision, images, labels)
            again, _ = trained(plain, who, precision, images, labels)
            ms = step_ms(plain, who, precision, images[:N], labels[:N], "nchw")
            yield who, {"losses": losses, "accuracy": accuracy, "same_bits": again == losses, "step_ms": {"nchw": ms}}
        return
    plain, x = resnet18().cuda(), torch.rand((N, 3, 224, 224), device="cuda")
    labels = torch.arange(N, device="cuda") % 1000
    for who in CONTENDERS:
        yield who, {"step_ms": {layout: step_ms(plain, who, precision, x, labels, layout) for layout in layouts}}


@exits_cleanly
def main() -> int:
    """Trains, compares; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--model", default="digits", choices=("digits", "resnet18"))
    add("--precision", default="fp32", help="error classes, of fp32, tf32, fp16 (default: fp32)")
    add("--N", type=int, default=BATCH, help=f"images of a step that is timed (default: {BATCH})")
    add("--layouts", default="nchw,nhwc", help="of resnet18 (default: nchw,nhwc)")
    add("--out", type=Path, metavar="FILE", help="append a record of each class to FILE")
    chosen = options.parse_args()
    torch.backends.cudnn.benchmark = True
    file, headers = recorded(chosen.out) if chosen.out else (None, {})
    for precision in chosen.precision.split(","):
        facts: Record = {"model": chosen.model, "precision": precision, "N": chosen.N, "by": {}}
        for who, result in measured(chosen.model, precision, chosen.N, chosen.layouts.split(",")):
            facts["by"][who] = result
            more = [f"last loss {result['losses'][-1]:.4f}, accuracy {result['accuracy']:.1%}, "
                    f"same bits again: {result['same_bits']}"] if "losses" in result else []  # fmt: skip
            print(
                chosen.model,
                precision,
                who,
                {k: round(ms, 3) for k, ms in result["step_ms"].items()},
                *more,
                flush=True,
            )
        if file:
            file.header("library-run", {**headers, **facts})
    return 0


def recorded(path: Path) -> tuple[RecordFile, Record]:
    """A record file, and the keys of its headers for this run."""
    executor, file = CudaExecutor(), RecordFile(path)
    headers = environment.write_headers(file, executor.header(), command_line("examples/train_network.py", None))
    executor.leave()
    return file, headers


if __name__ == "__main__":
    sys.exit(main())
