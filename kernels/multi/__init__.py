"""Channels in parallel (split-K), float4 loads, reduction by a second kernel or atomics."""
