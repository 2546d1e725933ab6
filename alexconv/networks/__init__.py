"""Whole networks, images in, scores out: ``alexconv.networks.load`` and ``alexconv run --network``."""

from alexconv.networks.loaded import LoadedNetwork, load

__all__ = ["LoadedNetwork", "load"]
