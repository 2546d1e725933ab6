"""Regenerates the tables of docs/predict.md from results/ and results/predicted/, and the band of predictions.

python scripts/predict_page.py

The band of nine in ten measured times is ``below`` and ``above`` in alexconv/predict/gpus/h200.toml.
"""

import re
from pathlib import Path

from alexconv.predict.accuracy import pairs
from alexconv.predict.page import band, files, page
from alexconv.records.store import read

CHECKOUT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Writes the page and the band."""
    where = files(CHECKOUT / "results")
    path = CHECKOUT / "docs" / "predict.md"
    path.write_text(page(path.read_text(), where))
    known = pairs(read(where.measured), read([where.predicted]))
    gpu = CHECKOUT / "alexconv" / "predict" / "gpus" / "h200.toml"
    text = gpu.read_text()
    for name, share in zip(("below", "above"), band([pair for pair in known if not pair.held_out]), strict=True):
        text = re.sub(rf"(?m)^{name} = {{ value = [0-9.]+", f"{name} = {{ value = {share:.2f}", text)
    gpu.write_text(text)


if __name__ == "__main__":
    main()
