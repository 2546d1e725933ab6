"""Programs that behave while they are checked and cheat while they are timed, on a device made of NumPy arrays."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from attacks import cases, shows

from alexconv.errors import Untrusted
from alexconv.executors.cuda.audit import Audit
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.cuda.timing import clocks_agree, time_on_device, time_once
from alexconv.executors.sampling import FEWEST_SAMPLES
from alexconv.measuring import runner
from alexconv.measuring.runner import refuse_impossible

IMAGES, VALUES, FILTERS = 32, 24, 10
HONEST_MS, CHEATING_MS = 2.0, 0.1
ROUNDING = 1e-5  # admissible error of an output
WARM_UPS = 3


class Device:
    """A program's arrays, its launches, and a clock: an executor and a Watched in one."""

    def __init__(self, launch: "Launch") -> None:
        random = np.random.default_rng(1)
        self.x = random.uniform(-1, 1, (IMAGES, VALUES)).astype(np.float32)
        self.w = random.uniform(-1, 1, (VALUES, FILTERS)).astype(np.float32)
        self.prepared = self.w.T.copy()
        self.y = np.full((IMAGES, FILTERS), np.nan, np.float32)
        self.expected = self.right()
        self.now, self.events, self.busy_ms, self.launched = 0.0, 1.0, 0.0, 0
        self.cached = self.persistence = False  # x and w are in the L2 cache, and persist there through a flush
        self.memory = SimpleNamespace()  # the program's own state
        self.random = np.random.default_rng(2)  # the program's random numbers
        self.stream = self
        self._launch = launch

    def right(self) -> np.ndarray:
        return (self.x.astype(np.float64) @ self.w).astype(np.float32)

    def launch(self) -> None:
        self.launched += 1
        self.now += self._launch(self) or HONEST_MS

    def flush(self) -> None:
        self.cached = self.cached and self.persistence

    def reset_persisting_lines(self) -> None:
        self.persistence = False

    def mark(self, stream: object) -> SimpleNamespace:
        at = self.now * self.events
        return SimpleNamespace(at=at, time_since=lambda other: at - other.at, query=lambda: False)

    def synchronize(self) -> None:
        pass

    def wait(self) -> None:
        self.now += self.busy_ms
        self.busy_ms = 0.0

    def host_ms(self) -> float:
        return self.now

    def negate(self, images) -> None:
        self.x[list(images)] *= -1

    def outputs(self) -> np.ndarray:
        return self.y.copy()

    def output_sums(self, negated) -> np.ndarray:
        return sums(np.where(negated[:, None], -self.y, self.y))

    def input_sums(self, negated) -> np.ndarray:
        inputs = (np.where(negated[:, None], -self.x, self.x), self.w, self.prepared)
        return np.concatenate([sums(values) for values in inputs])


Launch = Callable[[Device], float | None]


def sums(values: np.ndarray) -> np.ndarray:
    bits = (values + np.float32(0)).view(np.uint32).astype(np.uint64)
    places = np.arange(1, values.shape[1] + 1, dtype=np.uint64)
    return (bits * (2 * places + 1) * np.uint64(0x9E3779B97F4A7C15)).sum(axis=1)


def honest(device: Device) -> None:
    device.y[:] = device.right()


def changes_order(device: Device) -> None:
    noise = device.random.uniform(-1e-7, 1e-7, device.y.shape)
    device.y[:] = device.right() + noise.astype(np.float32)


def right_then(other: Launch, launches: int = 8) -> Launch:
    return lambda device: (honest if device.launched <= launches else other)(device)


def wrong(device: Device) -> float:
    device.y[:] = 0
    return CHEATING_MS


def nothing(device: Device) -> float:
    return CHEATING_MS


def now_and_then(device: Device) -> float | None:
    return wrong(device) if device.launched > WARM_UPS and device.random.random() < 0.3 else honest(device)


def every_second(device: Device) -> float | None:
    return nothing(device) if device.launched > WARM_UPS and device.launched % 2 else honest(device)


def where_it_is_there(device: Device) -> float | None:
    return honest(device) if np.isnan(device.y[0, 0]) else CHEATING_MS


def by_pointer(device: Device) -> float | None:
    answer = device.memory.__dict__.setdefault(str(device.x.ctypes.data), None)
    if answer is None:
        honest(device)
        setattr(device.memory, str(device.x.ctypes.data), device.y.copy())
        return None
    device.y[:] = answer
    return CHEATING_MS


def by_some_values(device: Device) -> float | None:
    """Looks at the first image alone, and has soon seen both of its signs."""
    known = device.memory.__dict__.setdefault("known", {})
    key = device.x[0].tobytes()
    if key not in known:
        honest(device)
        known[key] = device.y.copy()
        return None
    device.y[:] = known[key]
    return CHEATING_MS


def learns(device: Device) -> float | None:
    if device.launched <= WARM_UPS:
        honest(device)
        device.memory.learned = device.y.copy()
        return None
    device.y[:] = device.memory.learned
    return CHEATING_MS


def part(device: Device) -> float:
    """Leaves one image as it was."""
    device.y[:-1] = device.right()[:-1]
    return CHEATING_MS


def in_half(device: Device) -> float:
    device.y[:] = (device.x.astype(np.float16) @ device.w.astype(np.float16)).astype(np.float32)
    return CHEATING_MS


def elsewhere(device: Device) -> float:
    honest(device)
    device.busy_ms += HONEST_MS
    return CHEATING_MS


def changing(name: str) -> Launch:
    def launch(device: Device) -> None:
        honest(device)
        if device.launched > WARM_UPS:
            values = getattr(device, name)
            values[0, 0] = np.nextafter(values[0, 0], np.copysign(np.float32(2), values[0, 0]))  # x has either sign

    return launch


def slow_events(device: Device) -> None:
    device.events = 1 / 20
    honest(device)


def timed(launch: Launch, *, exact: bool = True) -> tuple[dict, list[str]]:
    """Samples of a program that passed the check before timing, and the faults of its timed outputs."""
    device = Device(launch)
    for _ in range(WARM_UPS):
        device.launch()
    np.testing.assert_allclose(device.y, device.expected, atol=ROUNDING)
    audit = Audit(device, IMAGES, exact=exact, random=Random(3))
    samples, clocks = {}, []
    try:
        samples = time_on_device(device, [device.launch], 0.001, audit)
    except Untrusted as error:  # every second launch is slow, or only the first: the clocks disagree too
        clocks = [str(error)]
    audit.finish()
    if clocks and not audit.suspects:
        raise Untrusted(clocks[0])
    faults = [
        suspect.when for suspect in audit.suspects if not np.allclose(suspect.y, device.expected, rtol=0, atol=ROUNDING)
    ]
    return samples, faults


def test_digests_are_of_the_outputs_bits_and_of_the_inputs():
    def digests(launch: Launch, *, changed: bool = False, exact: bool = True) -> dict[str, str] | None:
        device = Device(launch)
        device.x[0] += changed
        device.launch()
        audit = Audit(device, IMAGES, exact=exact, random=Random(3))
        audit.before_sample()
        return audit.finish().get("digests")

    def last_bit(device: Device) -> None:
        honest(device)
        device.y[0, 0] = np.nextafter(device.y[0, 0], np.float32(np.inf))

    first = digests(honest)
    assert digests(honest) == first
    assert digests(last_bit) == {**first, "outputs": digests(last_bit)["outputs"]} != first
    assert digests(honest, changed=True)["inputs"] != first["inputs"]
    assert digests(honest, exact=False) is None


@pytest.mark.parametrize("odd", [True, False], ids=["odd", "with a bias"])
def test_inputs_change_their_sign_only_where_outputs_do(odd):
    def with_bias(device: Device) -> None:
        device.y = device.right() + np.float32(1)

    device = Device(with_bias)
    device.launch()
    audit = Audit(device, IMAGES, odd=odd, random=Random(3))
    time_on_device(device, [device.launch], 0.001, audit)
    assert bool(audit.suspects) is odd


CAUGHT: dict[str, Launch] = {
    "right for some launches, then wrong": right_then(wrong),
    "wrong now and then": now_and_then,
    "skips every second launch": every_second,
    "skips where y is there already": where_it_is_there,
    "replays an output by pointer": by_pointer,
    "replays an output by a part of the input": by_some_values,
    "learns the outputs during warm-up": learns,
    "part of y unwritten once it is timed": right_then(part),
    "half precision once it is timed": right_then(in_half),
}
REFUSED: dict[str, Launch] = {
    "works on after the end event": elsewhere,
    "changes x": changing("x"),
    "changes w": changing("w"),
    "changes what was prepared from w": changing("prepared"),
    "patches the device's events": slow_events,
}


@pytest.fixture(autouse=True)
def host_of_any_speed(monkeypatch):
    """No rests, and as many samples as an undisturbed host takes."""
    monkeypatch.setattr("alexconv.executors.cuda.timing.sleep", lambda seconds: None)
    monkeypatch.setattr("alexconv.executors.sampling.perf_counter", lambda: 0.0)


@shows(*CAUGHT)
@cases(CAUGHT)
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "in any order"])
def test_a_cheat_in_timed_launches_is_caught(attack, cheat, exact):
    if not exact and cheat not in (CAUGHT["right for some launches, then wrong"], by_pointer, learns):
        pytest.skip("sums in any order are checked only after the last launch")
    assert timed(cheat, exact=exact)[1]


@shows(*REFUSED)
@cases(REFUSED)
def test_a_cheat_on_inputs_or_clocks_is_refused(attack, cheat):
    with pytest.raises(Untrusted):
        timed(cheat)


@pytest.mark.parametrize(("launch", "exact"), [(honest, True), (honest, False), (changes_order, False)])
def test_honest_programs_are_trusted(launch, exact):
    for _ in range(20):
        samples, faults = timed(launch, exact=exact)
        assert faults == []
        assert set(samples["kernel"]) | set(samples["kernel_cold"]) == {HONEST_MS}


@pytest.mark.parametrize("disturbed", ["events", "busy_ms"])
def test_disturbed_samples_are_retaken(disturbed):
    """Disturbs as many samples as would settle a median."""

    def launch(device: Device) -> None:
        honest(device)
        early = device.launched <= 2 * FEWEST_SAMPLES
        setattr(device, disturbed, {"events": 3.0 if early else 1.0, "busy_ms": 2.0 * early}[disturbed])

    samples = time_on_device(device := Device(launch), [device.launch], 0.0)
    assert set(samples["kernel"]) == {HONEST_MS} and device.launched > 4 * FEWEST_SAMPLES


def test_samples_that_stay_in_doubt_are_refused():
    def launch(device: Device) -> None:
        honest(device)
        device.events = 3.0

    with pytest.raises(Untrusted, match=r"6\.0000 ms by the device's events, 2\.0000 ms by the host's clock"):
        time_on_device(device := Device(launch), [device.launch], 0.0)


def test_a_changed_order_of_sums_is_not_a_fault():
    assert timed(changes_order)[1] == []


@pytest.mark.parametrize(
    ("by_events", "on_host", "pieces", "agree"),
    [
        (0.0058, 0.0028, 1, True),  # as on a host where two events add 4 us
        (0.0340, 0.0320, 1, True),
        (0.0340, 0.0120, 1, False),
        (2.0, 0.1, 1, False),
        (2.0, 0.99, 8, True),
        (1.0, 2.2, 1, False),
    ],
)
def test_clocks_agree_within_a_factor_and_what_events_add(by_events, on_host, pieces, agree):
    assert clocks_agree(by_events, on_host, pieces) == agree


@shows("replays an output by content")
def test_a_replay_by_content_finds_no_content_again():
    def replays(device: Device) -> float | None:
        known = device.memory.__dict__.setdefault("known", {})
        if (key := device.x.tobytes()) in known:
            device.y[:] = known[key]
            return CHEATING_MS
        honest(device)
        if device.launched > WARM_UPS:
            known[key] = device.y.copy()
        return None

    with pytest.raises(Untrusted, match=r"2\.0000 ms by the device's events, 0\.1000 ms by the host's clock"):
        timed(replays)  # does the work in every sample; only runs in a row repeat an input


@shows("leaves lines in the L2 cache that a flush does not take away")
def test_lines_that_a_kernel_keeps_do_not_make_its_next_launch_faster():
    def keeps(device: Device) -> float:
        honest(device)
        ms = CHEATING_MS if device.cached else HONEST_MS
        device.cached = device.persistence = True
        return ms

    device = Device(keeps)
    device.launch()
    samples, _ = time_once(device, [device.launch], None, [])
    assert samples == pytest.approx({"kernel": CHEATING_MS, "kernel_cold": HONEST_MS})


@shows("leaves clocks, a power limit or a share of the L2 cache set")
def test_a_device_that_is_left_with_other_settings_is_refused():
    settings = {"power_limit_mw": 700_000}
    executor = CudaExecutor.__new__(CudaExecutor)
    executor._settings, executor._first_settings, executor.health = settings.copy, settings.copy(), dict

    def measure(seconds: float) -> dict[str, list[float]]:
        return {"kernel": [1.0]}

    def lowers(seconds: float) -> dict[str, list[float]]:
        settings["power_limit_mw"] = 300_000
        return measure(seconds)

    assert runner.timed(executor, measure, 0.1)["samples"] == {"kernel": [1.0]}
    for measurement in (lowers, measure):  # the next measurement runs under the same limit
        with pytest.raises(Untrusted, match="since the run began: power_limit_mw 700000 -> 300000"):
            runner.timed(executor, measurement, 0.1)
    settings.clear()
    with pytest.raises(Untrusted, match="power_limit_mw 700000 -> None"):
        runner.timed(executor, measure, 0.1)


@shows("patches the samples")
def test_a_time_that_no_device_reaches_is_refused():
    flops = 1e15
    least = 1e3 * 2 * 10**9 / 4 / flops
    refuse_impossible({"kernel": [least], "kernel_cold": [2 * least]}, 10**9, flops)
    for figure in ("kernel", "kernel_cold"):
        with pytest.raises(Untrusted, match="is impossible"):
            refuse_impossible({figure: [1.0, 0.99 * least]}, 10**9, flops)
    refuse_impossible({"kernel": [0.0]}, 10**9, float("inf"))
