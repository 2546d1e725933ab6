"""A connection to a Dask scheduler: an existing one, or one on this host with a worker for each GPU.

Conventions are dask-cuda's: a worker is one process with one thread and one GPU, whose UUID alone is in
CUDA_VISIBLE_DEVICES.  A scheduler and workers started here listen on the loopback interface alone.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from alexconv.errors import AlexconvError, MissingTool, UsageError
from alexconv.machine import cores

LOCAL = "local"
LOOPBACK = "127.0.0.1"
ANSWER_S = 30.0  # for a scheduler to answer
CLOSE_S = 10.0  # for a client to close; on a busy host it may take longer
MOST_ON_CPU = 4  # workers that run kernels on the CPU, unless the user says how many


class ClusterLost(AlexconvError):
    """The scheduler, or the last worker, no longer answers."""


def import_distributed() -> Any:
    """Dask's ``distributed``; raises MissingTool that says what to install."""
    try:
        import distributed
    except ImportError as error:
        raise MissingTool(f"--cluster needs Dask: pip install 'alexconv[cluster]' ({error})") from None
    return distributed


@contextmanager
def connected(where: str, backend: str) -> Iterator[Any]:
    """A client of the scheduler: ``local``, ``local:4``, an address, or a file that the scheduler wrote.

    Raises MissingTool if none answers, UsageError for anything else.
    """
    distributed = import_distributed()
    for name in ["distributed", *logging.root.manager.loggerDict]:
        if name.startswith("distributed"):  # this project's own lines say what matters
            logging.getLogger(name).setLevel(logging.CRITICAL)
    kind, _, count = where.partition(":")
    if kind == LOCAL:
        if count and not (count.isdecimal() and int(count)):
            raise UsageError(f"--cluster {where}: the number of workers must be 1 or more, as in local:4")
        with local_cluster(backend, int(count or 0)) as cluster, client_of(distributed, cluster) as client:
            yield client
        return
    if Path(where).is_file():
        with client_of(distributed, scheduler_file=where) as client:
            yield client
        return
    if "/" in where and "://" not in where:
        raise UsageError(f"--cluster {where}: no such file")
    if ":" not in where:
        raise UsageError(
            f"--cluster {where}: write local, local:4, HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT or FILE"
        )
    with client_of(distributed, where if "://" in where else f"tcp://{where}") as client:
        yield client


@contextmanager
def client_of(distributed: Any, address: Any = None, **options: Any) -> Iterator[Any]:
    """A client that is not the process's default; raises MissingTool if no scheduler answers."""
    try:
        client = distributed.Client(address, set_as_default=False, timeout=ANSWER_S, **options)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        target = next((str(place) for place in (address, options.get("scheduler_file")) if place), LOCAL)
        reason = " ".join(str(error).split()) or type(error).__name__
        raise MissingTool(f"no scheduler answers at {target} ({reason[:150]})") from None
    try:
        yield client
    finally:
        with suppress(Exception):  # all results have arrived, and the scheduler may be gone
            client.close(timeout=CLOSE_S)


@contextmanager
def local_cluster(backend: str, count: int) -> Iterator[Any]:
    """A scheduler and workers on this host: one for each GPU, else some on the CPU; ``count`` of them, if not 0.

    More workers than GPUs share them, one point at a time.
    """
    import dask
    from distributed import Nanny, Scheduler, SpecCluster

    gpus = [] if backend == "host" else visible_gpus()
    environments = [{"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} for gpu in gpus] or [{}]
    number = count or (len(gpus) or min(MOST_ON_CPU, cores()))
    options = {"host": LOOPBACK, "nthreads": 1, "dashboard": False, "memory_limit": 0, "resources": {"GPU": 1}}
    quiet = {
        "DASK_LOGGING__DISTRIBUTED": "critical",
        "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",  # it stops the thread that measures 100 times a second
        "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__DISK": "False",
    }
    workers = {
        f"{'gpu' if gpus else 'cpu'}-{i}": {
            "cls": Nanny,
            "options": {
                **options,
                "silence_logs": logging.CRITICAL,
                "env": quiet | environments[i % len(environments)],
            },
        }
        for i in range(number)
    }
    scheduler = {
        "cls": Scheduler,
        "options": {"host": LOOPBACK, "port": 0, "dashboard": False, "dashboard_address": f"{LOOPBACK}:0"},
    }
    settings = {
        "distributed.scheduler.allowed-failures": 0,  # this project reassigns a killed worker's points
        "distributed.scheduler.work-stealing": False,
        "distributed.scheduler.worker-ttl": None,  # a compiler may keep a worker from its heartbeat
        "distributed.deploy.lost-worker-timeout": "1d",  # else a worker that ends again is not restarted
    }
    with (
        dask.config.set(settings),
        SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.CRITICAL) as cluster,
    ):
        yield cluster


def visible_gpus() -> list[str]:
    """The GPUs that CUDA may use here: the entries of CUDA_VISIBLE_DEVICES, or all UUIDs; none without a driver.

    NVML counts all of the host's GPUs, CUDA those in CUDA_VISIBLE_DEVICES.
    """
    from os import environ

    import pynvml

    if (named := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [entry.strip() for entry in named.split(",") if entry.strip()]
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    except pynvml.NVMLError:
        return []
