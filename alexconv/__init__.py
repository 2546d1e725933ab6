"""A study framework for convolution kernels on GPUs."""

from pathlib import Path

__version__ = "0.1.0"

# In a plain checkout the sub-packages `kernels`, `cpu_reference` and `reports` lie beside this folder; installed,
# they lie inside it (see the package-dir table of pyproject.toml).
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file():
    __path__.append(str(_checkout))
