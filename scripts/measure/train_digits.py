"""Trains the network of alexconv.accuracy.network on scikit-learn's digits and writes its weights into the package.

python scripts/measure/train_digits.py          needs torch and scikit-learn; a minute on two cores

The seed and the single thread make the weights reproducible on the same machine with the same torch.
"""

import sys

import numpy as np
import torch
from torch import nn

from alexconv.accuracy.network import CLASSES, HELD_OUT, SCALE, WORKLOAD, digits
from alexconv.data import DIGITS, WEIGHTS

SEED, EPOCHS, BATCH, RATE = 0, 12, 32, 1e-3
REAL = 64  # held-out images that come with the package, as inputs of data set real


def layers() -> nn.Sequential:
    """The network, untrained: both convolutions without bias, each with ReLU and 2x2 max pooling."""
    blocks: list[nn.Module] = []
    for conv in WORKLOAD.layers:
        blocks += [nn.Conv2d(conv.C, conv.M, (conv.R, conv.S), bias=False), nn.ReLU(), nn.MaxPool2d(2)]
    last = WORKLOAD.layers[-1]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(last.M * (last.E // 2) * (last.F // 2), CLASSES))


def train(model: nn.Sequential, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Adam on the cross entropy, with a learning rate that falls to zero along a cosine."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for epoch in range(EPOCHS):
        losses = []
        for batch in torch.randperm(len(images)).split(BATCH):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")


def save_images(images: np.ndarray) -> None:
    """Writes images ``[N][1][H][W]`` at their own size, a value per pixel."""
    border = (images.shape[2] - 8 * SCALE) // 2
    np.savez_compressed(DIGITS, digits=images[:, 0, border:-border:SCALE, border:-border:SCALE].astype(np.float16))


def main() -> int:
    """Trains on all but the held-out images, tells the accuracy on those, writes the weights."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    images, labels = map(torch.from_numpy, digits())
    save_images(images.numpy()[-HELD_OUT:][:REAL])
    model = layers()
    train(model, images[:-HELD_OUT], labels[:-HELD_OUT])
    with torch.no_grad():
        right = model(images[-HELD_OUT:]).argmax(1) == labels[-HELD_OUT:]
    print(f"accuracy on {HELD_OUT} images held out: {right.float().mean():.4f}")
    filters = {f"conv{number}": model[3 * number - 3].weight for number in (1, 2)}
    arrays = {**filters, "weights": model[-1].weight, "bias": model[-1].bias}
    np.savez_compressed(WEIGHTS, **{name: array.detach().numpy() for name, array in arrays.items()})
    print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
