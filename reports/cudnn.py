"""What cuDNN runs on a layer: algorithm, arithmetic, workspace and error bound, by the names of its kernels."""

from collections.abc import Iterator

from alexconv.planning.layouts import LAYOUTS
from alexconv.planning.peers import peer_name
from alexconv.reports.comparison import CONTRACTS, FP32, MANY, ONE, Frontier, Source, hot
from alexconv.reports.elements import Cell, Section, Table, shown
from alexconv.reports.measurements import Measured
from alexconv.reports.peer_kernels import (
    FMA,
    MEGA,
    Plan,
    algorithm_of,
    definition,
    fft_tile,
    kernel_of,
    plan_of,
    products,
    steps,
)

COLUMNS = (
    *("class", "layout", "N", "ms", "algorithm", "kernels", "workspace, MB"),
    *("products per output plane and channel", "error bound in terms of"),
)


def sections(frontier: Frontier | None, layer: int) -> list[Section]:
    """What it runs on a layer of AlexNet, with many images and with one; then the names that say so."""
    sources = {N: source for N in (MANY, ONE) if (source := sources_of(frontier).get(N))}
    every = [(N, point, plan) for N, source in sources.items() for point, plan in plans(source, layer, N)]
    if not every:
        return []
    files = dict.fromkeys(source.file for source in sources.values())
    origin = f"From `{'`, `'.join(files)}`."
    rows = [row(N, point, plan) for N, point, plan in every]
    caption = (
        "Of the engine that cuDNN's benchmark finds fastest, by the names of its kernels, which run in this order. "
        "Workspace: device memory besides input, filters and output. Products: real multiplications, without those of "
        f"transforms. {origin}"
    )
    names = dict.fromkeys(name for _, _, plan in every for name in plan.names)
    named: list[tuple[Cell, ...]] = [(kernel_of(name).step, name) for name in names]
    key, columns = f"layer-alexnet-{layer}-cudnn", ("what it does", "name, as recorded")
    table = Table(key, "cuDNN's kernels", caption, COLUMNS, rows, filters=("class", "N"), chosen={"N": str(MANY)})
    evidence = Table(f"{key}-names", "What the names say", origin, columns, named, csv=False)
    return [
        Section("cudnn", "What cuDNN runs", story(sources.get(MANY), layer), [table]),
        Section("names", "Names of cuDNN's kernels", "", [evidence]),
    ]


def sources_of(frontier: Frontier | None) -> dict[int, Source | None]:
    """The files that compare ours with cuDNN, by batch size."""
    return {MANY: frontier.many, ONE: frontier.one} if frontier else {}


def plans(source: Source, layer: int, N: int) -> Iterator[tuple[Measured, Plan]]:
    """What cuDNN ran in each class and layout."""
    for precision in dict.fromkeys(contract.precision.peer for contract in CONTRACTS):
        for layout in LAYOUTS:
            point = source.named(peer_name(layout, precision), layer, N)
            if point and (plan := plan_of(point)):
                yield point, plan


def row(N: int, point: Measured, plan: Plan) -> tuple[Cell, ...]:
    """The cells, in the order of COLUMNS."""
    layout = next(name for name in LAYOUTS if f"-{name}-" in point.series.rung)
    space = plan.workspace_bytes
    return (
        point.precision,
        layout.upper(),
        N,
        hot(point),
        algorithm_of(plan.names),
        steps(plan.names),
        None if space is None else round(space / MEGA),
        plan.products,
        plan.bound,
    )


def story(source: Source | None, layer: int) -> str:
    """Why cuDNN takes its time in fp32, as far as its kernels' names say it."""
    theirs, ours = (source.faster(FP32, layer, MANY), source.best(FP32, layer, MANY)) if source else (None, None)
    plan = plan_of(theirs)
    if not plan or not theirs or not ours:
        return ""
    tile, own = fft_tile(plan.names), products(plan.names, plan.conv)
    where = f" on {FMA}" if FMA in steps(plan.names) else ""
    text = f"In fp32, N={MANY}, cuDNN takes {shown(hot(theirs))} ms: {plan.brief}."
    if tile and own:
        fewer = definition(plan.conv) / own
        text += (
            f" For a plane of outputs and an input channel that is {own:,} real products{where}, {fewer:.2f} times "
            f"fewer than the definition's {definition(plan.conv):,}, besides the transforms, whose results pass "
            f"through memory. Its error is bounded in terms of {plan.bound}, not of the output's patch."
        )
    rung = ours.rung
    factors = (
        f", {rung.products} {rung.tensor_factors} products" if rung and rung.tensor_factors and rung.products else ""
    )
    products_text = (
        f"{factors} on tensor cores for each of the definition's, with a bound in terms of the output's patch"
    )
    return f"{text} Ours, `{ours.series.rung}`: {shown(hot(ours))} ms{products_text if factors else ''}."
