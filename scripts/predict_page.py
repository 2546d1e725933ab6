"""Writes the tables of docs/predict.md anew, from results/ and results/predicted/.

python scripts/predict_page.py
"""

from pathlib import Path

from alexconv.prediction.page import files, page

CHECKOUT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Writes the page."""
    path = CHECKOUT / "docs" / "predict.md"
    path.write_text(page(path.read_text(), files(CHECKOUT / "results")))


if __name__ == "__main__":
    main()
