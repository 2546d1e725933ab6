"""``auto``: the rung to use for a shape, batch size, precision and layout.

The fastest that ``python -m alexconv.tune --auto`` has measured on the GPU; if it has measured none, the fastest that
was measured for known networks (``alexconv.tune.measured``); for other layers the rung with the least estimated time
(``alexconv.tune.estimate``) that suits the GPU, takes the shape and fits its memory, with the tile sizes of that
estimate.  Constants that ``alexconv.tune`` has found for the rung take precedence over those.

Rungs without an estimate come last, in reverse ladder order; so do, for one channel, those with hi and lo terms: nearly
every image then has pixels too faint for them (docs/precision.md).  On the CPU no rung is fast: it takes those that
compile and run in the least time (``cpu_order``).

A rung whose order of additions varies is never chosen.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from alexconv.executors.interface import Executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER, Ladder
from alexconv.kernels.problem import Device
from alexconv.kernels.rung import Rung
from alexconv.messages import Say
from alexconv.planning.planner import DoesNotFit, plan_on
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv
from alexconv.tune import cache as tuning_cache
from alexconv.tune import measured
from alexconv.tune.estimate import best, estimate, ranked
from alexconv.tune.measured import Request

AUTO = "auto"
OF_A_RUNG = 3  # candidates of one rung among the contenders


@dataclass(frozen=True)
class Choice:
    """A rung with its constants, whether it was measured to be the fastest, and its measured or estimated time."""

    rung: Rung
    constants: dict[str, int]
    measured: bool
    us: float = inf

    def bound(self, executor: Executor, conv: Conv) -> BoundRung:
        """The rung bound to a layer on the executor's device."""
        return BoundRung(self.rung, conv, self.constants, executor.device)


def layouts_of(precision: str, ladder: Ladder = LADDER) -> tuple[str, ...]:
    """The layouts of a precision's rungs, that of most rungs first."""
    layouts = Counter(rung.layout for rung in ladder if rung.precision == precision)
    return tuple(layout for layout, _ in layouts.most_common())


def preferences(
    executor: Executor, conv: Conv, N: int, precision: str, ladder: Ladder = ALL_DIRECTIONS, layout: str | None = None
) -> tuple[BoundRung, ...]:
    """The rungs of a precision or a stricter one that take the layer, in the order in which to try them.

    Those of one layout, if given.
    """
    device, served = executor.device, (precision, *PRECISIONS[precision].stricter)
    ladder = repeatable(ladder.of_direction(conv.direction))
    if not executor.measures and (hosted := on_cpu(served, ladder)):
        bounds = [
            BoundRung(rung, conv, rung.resolve(conv, {}, N, device), device)
            for rung in hosted
            if layout in (None, rung.layout)
        ]
        return tuple(bound for bound in bounds if not bound.refusal())
    rungs = [
        rung
        for rung in reversed(ladder)
        if rung.precision in served and layout in (None, rung.layout) and not executor.unsuited(rung)
    ]
    timed = [known for rung in rungs if (known := best(rung, conv, N, device))]
    timed.sort(key=lambda known: (conv.C == 1 and known[1].rung.splits_floats, known[0]))
    return tuple(bound for _, bound in timed)


def repeatable(ladder: Ladder) -> Ladder:
    """The rungs that have the same bits in every run."""
    return Ladder(rung for rung in ladder if not rung.order_varies)


def on_cpu(precisions: Sequence[str], ladder: Ladder = LADDER) -> list[Rung]:
    """The rungs to take on the CPU, in order: those of the first of these precisions that has any."""
    quick = sorted((rung for rung in ladder if rung.cpu_order), key=lambda rung: rung.cpu_order)
    by_class = ([rung for rung in quick if rung.precision == name] for name in precisions)
    return next(filter(None, by_class), [])


def choose(
    executor: Executor, request: Request, say: Say, budget: int | None = None, ladder: Ladder = ALL_DIRECTIONS
) -> Choice | None:
    """The rung to use, in ``budget`` bytes of device memory, the executor's own unless given.

    None if none suits.
    """
    conv, N = request.conv, request.N
    options = choices(executor, request, say, ladder)
    return next((choice for choice in options if not misfit(executor, choice, conv, N, budget)), None)


def choices(executor: Executor, request: Request, say: Say, ladder: Ladder) -> Iterator[Choice]:
    """What was tuned here, what was measured of the layer, the rest by estimates, or as measured with a border."""
    conv, N = request.conv, request.N
    ladder = repeatable(ladder.of_direction(conv.direction))

    def known(fastest: measured.Fastest | None) -> Choice | None:
        if fastest is None or executor.unsuited(fastest.rung):
            return None
        return Choice(fastest.rung, dict(fastest.constants), True, fastest.us)

    if best := tuning_cache.load_best(executor, request, say, ladder):
        yield Choice(best.rung, best.constants, True, 1e3 * best.kernel_ms)
    bordered = None
    if executor.measures:
        if alike := known(measured.fastest(executor.device, request)):
            yield alike
        bordered = known(measured.with_border(executor.device, request))
    for bound in preferences(executor, conv, N, request.precision, ladder, request.layout):
        tuned = tuning_cache.load(executor, bound.rung, conv, N, say)
        constants = bound.rung.resolve(conv, tuned.constants if tuned else bound.constants, N, executor.device)
        choice = Choice(bound.rung, constants, False, 1e3 * tuned.kernel_ms if tuned else estimate(bound, N))
        if bordered and bordered.us < choice.us:
            yield bordered
            bordered = None
        yield choice


def contenders(device: Device, conv: Conv, N: int, rungs: Iterable[Rung], count: int) -> list[BoundRung]:
    """The ``count`` of some rungs with their tile sizes that have the least estimates."""
    ranking: list[tuple[float, BoundRung]] = []
    for rung in rungs:
        if not rung.unsuited(device.capability):
            ranking += ranked(rung, conv, N, device)[:OF_A_RUNG]
    return [bound for _, bound in sorted(ranking, key=lambda known: known[0])][:count]


def misfit(executor: Executor, choice: Choice, conv: Conv, N: int, budget: int | None) -> str | None:
    """Why the executor cannot run it, or None."""
    try:
        plan_on(executor, choice.bound(executor, conv), N, budget)
    except DoesNotFit as error:
        return str(error)
    return None
