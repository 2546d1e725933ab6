"""What the checks of ``alexconv check`` ask for before they run a kernel."""

from contextlib import suppress

from alexconv.check import kinds
from alexconv.kernels.ladder import LADDER


class Opened(Exception):
    """In place of a run."""


def test_no_array_of_a_check_is_larger_than_what_it_may_write(monkeypatch):
    plans = []

    def opened(executor, cut, *arrays):
        plans.append(cut)
        raise Opened

    monkeypatch.setattr(kinds, "open_rung", opened)
    for rung in (rung for rung in LADDER if not rung.gpu_only and rung.dtype == "float32"):
        for conv in (conv for conv in kinds.SHAPES if kinds.taken(rung, conv)):
            with suppress(Opened):
                kinds.wrong_at_edges(rung, conv)
    assert {cut.bound.conv for cut in plans} == set(kinds.SHAPES)
    for cut in plans:
        sizes = cut.bound.piece_bytes(cut.images_per_piece)
        assert max(sizes.values()) <= kinds.FILE_BYTES, (cut.bound.rung.name, sizes)
