"""A search for inputs on which a rung's error comes close to its bound, or breaks it.

A trial is uniform data times powers of two, one for each image, channel, row, column, filter and tap and a few for
single inputs, with signs and significands of a kind.  Trials change at random, and a change that brings the error
nearer to the bound is kept: a (1+1) evolution strategy with restarts (Rechenberg, "Evolutionsstrategie", 1973).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from alexconv.cpu_reference.reference import filter_norms, patch_norms, reference
from alexconv.executors.interface import Values
from alexconv.planning.checks import Expected, MaxError
from alexconv.precisions import ANY, WALK, Precision
from alexconv.shapes import Conv

Run = Callable[[Values, Values], Values]  # x [N][C][H][W], w [M][C][R][S]; y [N][M][E][F]

SPREAD = {np.dtype("float32"): 30, np.dtype("float16"): 5}  # largest exponent of a power of two, of either sign
AXES = ("image", "channel", "row", "column", "filter", "taps")
SIGNS = ("any", "positive", "alternating")
SIGNIFICANDS = ("any", "ones", "repeated")  # uniform; just below a power of two; the same in all inputs
SINGLES = 4
PATIENCE = 12  # changes without a gain, before the search restarts


@dataclass(frozen=True)
class Target:
    """What is attacked: a kernel's run on N images of a layer, its class and the type of its inputs."""

    run: Run
    conv: Conv
    N: int
    precision: Precision
    dtype: np.dtype
    atomic_additions: int = 0


@dataclass(frozen=True)
class Trial:
    """Powers of two along each axis of AXES, single inputs (place, power), and kinds of signs and significands."""

    powers: dict[str, np.ndarray] = field(hash=False)
    singles: tuple[tuple[int, int], ...] = ()
    signs: str = SIGNS[0]
    significands: str = SIGNIFICANDS[0]
    seed: int = 0

    @property
    def kind(self) -> str:
        """The bound that it is held to: roundings of repeated values repeat."""
        return ANY if self.significands == "repeated" else WALK

    def described(self) -> dict[str, object]:
        """The trial in a record."""
        spans = {axis: [int(power.min()), int(power.max())] for axis, power in self.powers.items() if power.any()}
        return {"powers": spans, "singles": len(self.singles), "signs": self.signs, "significands": self.significands}


@dataclass(frozen=True)
class WorstTrial:
    """The worst trial so far: its error over its bound and over the norms, and the trial itself."""

    ratio: float
    scaled: float
    misplaced: int
    kind: str
    trial: Trial
    trials: int


def lengths(conv: Conv, N: int) -> dict[str, int]:
    """The number of powers along each axis."""
    return dict(zip(AXES, (N, conv.C, conv.H, conv.W, conv.M, conv.K), strict=True))


def first_trial(conv: Conv, N: int, generator: np.random.Generator) -> Trial:
    """Data of one magnitude."""
    powers = {axis: np.zeros(length, np.int64) for axis, length in lengths(conv, N).items()}
    return Trial(powers, seed=int(generator.integers(2**31)))


def changed(trial: Trial, conv: Conv, N: int, spread: int, generator: np.random.Generator) -> Trial:
    """The trial with one thing changed."""
    choice = generator.integers(8)
    if choice < 4:
        axis = AXES[generator.integers(len(AXES))]
        power = trial.powers[axis].copy()
        some = generator.random(len(power)) < generator.choice((0.2, 0.5, 0.8))
        power[some] = generator.integers(-spread, spread + 1) if generator.random() < 0.8 else 0
        return replace(trial, powers={**trial.powers, axis: power})
    if choice < 6:
        place = int(generator.integers(N * conv.C * conv.H * conv.W))
        single = place, int(generator.integers(-spread, spread + 1))
        return replace(trial, singles=(*trial.singles[-SINGLES + 1 :], single))
    if choice == 6:
        return replace(trial, signs=SIGNS[generator.integers(len(SIGNS))], seed=int(generator.integers(2**31)))
    return replace(trial, significands=SIGNIFICANDS[generator.integers(len(SIGNIFICANDS))])


def arrays(trial: Trial, conv: Conv, N: int, dtype: np.dtype) -> tuple[Values, Values]:
    """Inputs and filters of a trial, rounded to a type, as float32."""
    generator, powers = np.random.default_rng(trial.seed), trial.powers

    def values(shape: tuple[int, ...]) -> Values:
        numbers = generator.uniform(-1, 1, shape)
        if trial.significands == "ones":
            numbers = np.sign(numbers) * (1 - generator.integers(1, 4, shape) * np.finfo(dtype).eps / 2)
        elif trial.significands == "repeated":
            numbers = np.sign(numbers) * generator.uniform(0.5, 1)
        return np.abs(numbers) if trial.signs == "positive" else numbers

    x, w = values(conv.x_shape(N)), values(conv.w_shape())
    if trial.signs == "alternating":
        x = np.abs(x)
    x = np.ldexp(x, powers["image"][:, None, None, None] + powers["channel"][:, None, None])
    x = np.ldexp(x, powers["row"][:, None] + powers["column"])
    for place, power in trial.singles:
        x.reshape(-1)[place] = np.ldexp(x.reshape(-1)[place], power)
    w = np.ldexp(w, powers["filter"][:, None, None, None] + powers["taps"].reshape(conv.C, conv.R, conv.S))
    with np.errstate(over="ignore"):
        return tuple(
            np.clip(v, -np.finfo(dtype).max, np.finfo(dtype).max).astype(dtype).astype(np.float32) for v in (x, w)
        )


def judged(target: Target, trial: Trial) -> tuple[float, MaxError]:
    """The trial's error over its bound, infinite where NaN or an infinity is in the wrong place."""
    conv, error = target.conv, MaxError()
    x, w = arrays(trial, conv, target.N, target.dtype)
    bound = target.precision.bound(conv.K, trial.kind, target.atomic_additions)
    norms = patch_norms(conv, x, bound.reach), filter_norms(w)
    error.add(target.run(x, w), Expected(reference(conv, x, w), *norms), bound)
    ratio = error.scaled / bound.factor
    return (float("inf") if np.isnan(ratio) else ratio), error


def search(target: Target, trials: int, seed: int = 0) -> WorstTrial:
    """The worst of ``trials`` trials, at least one."""
    conv, N, spread = target.conv, target.N, SPREAD[target.dtype]
    generator, done = np.random.default_rng(seed), 0
    worst: WorstTrial | None = None
    while worst is None or done < trials:
        trial, best, failed = first_trial(conv, N, generator), -1.0, 0
        while failed < PATIENCE and (worst is None or done < trials):
            candidate = changed(trial, conv, N, spread, generator) if best >= 0 else trial
            ratio, error = judged(target, candidate)
            done += 1
            if ratio > best:
                trial, best, failed = candidate, ratio, 0
            else:
                failed += 1
            if worst is None or ratio > worst.ratio:
                worst = WorstTrial(ratio, error.scaled, error.misplaced, candidate.kind, candidate, done)
    return replace(worst, trials=done)
