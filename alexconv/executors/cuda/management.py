"""A GPU's clocks, power and settings, read through NVML (the NVIDIA Management Library)."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from alexconv.records.store import Record


class Management:
    """The GPU at a PCI bus address; every reading is empty where NVML does not answer."""

    def __init__(self, pci_bus_id: str) -> None:
        import pynvml

        self._nvml, self._gpu = pynvml, None
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)

    def _answered(self, queries: dict[str, Callable[[], Any]]) -> Record:
        """The answers of the queries that this device supports; a MIG instance, for one, lacks several."""
        answers: Record = {}
        for name, query in queries.items() if self._gpu is not None else ():
            with suppress(self._nvml.NVMLError):
                answers[name] = query()
        return answers

    def facts(self) -> Record:
        """The device's UUID, its driver, and its highest SM clock in MHz."""
        if self._gpu is None:
            return {"nvml": "does not answer"}
        nvml, gpu = self._nvml, self._gpu
        return self._answered(
            {
                "uuid": partial(nvml.nvmlDeviceGetUUID, gpu),
                "driver": nvml.nvmlSystemGetDriverVersion,
                "max_sm_clock_mhz": partial(nvml.nvmlDeviceGetMaxClockInfo, gpu, nvml.NVML_CLOCK_SM),
            }
        )

    def health(self) -> Record:
        """SM clock in MHz, NVML's bit mask of throttle reasons, power in W and temperature in °C."""
        nvml, gpu = self._nvml, self._gpu
        readings = self._answered(
            {
                "sm_clock_mhz": partial(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
                "throttle_reasons": partial(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu),
                "power_w": partial(nvml.nvmlDeviceGetPowerUsage, gpu),
                "temperature_c": partial(nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
            }
        )
        if "power_w" in readings:
            readings["power_w"] /= 1e3  # NVML's are milliwatts
        return readings

    def energy(self) -> float | None:
        """Joules since the driver was loaded, or None where the device does not count them."""
        if self._gpu is not None:
            with suppress(self._nvml.NVMLError):
                return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu)) / 1e3  # NVML's are millijoules
        return None

    def settings(self) -> Record:
        """Requested clocks in MHz and the power limit in mW."""
        nvml, gpu = self._nvml, self._gpu
        return self._answered(
            {
                "sm_clock_asked_mhz": partial(nvml.nvmlDeviceGetApplicationsClock, gpu, nvml.NVML_CLOCK_SM),
                "memory_clock_asked_mhz": partial(nvml.nvmlDeviceGetApplicationsClock, gpu, nvml.NVML_CLOCK_MEM),
                "power_limit_mw": partial(nvml.nvmlDeviceGetPowerManagementLimit, gpu),
            }
        )
