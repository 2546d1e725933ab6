"""The pool of a cluster's workers: which exist, what each runs, and what happens when one ends.

Dask carries calls, results and messages, starts workers and notices their end.  This module assigns tasks to workers
(``workers=``): Dask would queue tasks at busy workers, steal work, and leave late workers idle.  A worker runs one task
at a time, as does a GPU and, with ``exclusive``, a host.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from alexconv.cluster import worker as remote
from alexconv.cluster.connection import ClusterLost
from alexconv.cluster.options import REFUSE
from alexconv.cluster.worker import Request
from alexconv.errors import AlexconvError, MissingTool
from alexconv.messages import Say
from alexconv.records.store import Record, digest

LOOK_S = 0.5  # between polls for workers that came or went
PATIENCE_S = 60.0  # without any worker
START_S = 120.0  # for the first workers
RESULT_S = 20.0  # for a result, which is small, to arrive from its worker
MOST_ENDS = 5  # of workers during one point or call


@dataclass(frozen=True)
class Worker:
    """A worker and the facts that it reported."""

    address: str
    facts: Record

    @property
    def name(self) -> str:
        """Its name and its host's."""
        return f"{self.facts['name']} on {self.facts['host']}"

    @property
    def host(self) -> str:
        """The name of its host."""
        return str(self.facts["host"])

    @property
    def card(self) -> str:
        """Its GPU's UUID, or its own name on a CPU."""
        return str(self.facts["uuid"] or self.facts["name"])

    @property
    def store(self) -> str:
        """The name of its cache."""
        return str(self.facts["store"])

    @property
    def kind(self) -> str:
        """Digest of what must be equal in one study: code, GPU model, driver, toolkit; not the GPU's UUID."""
        return digest(kind_facts(self.facts))

    def tokens(self, *, exclusive: bool) -> set[str]:
        """Names of resources that no two tasks may hold at once."""
        gpu = [self.facts["uuid"]] if self.facts["uuid"] else []
        return {self.address, *gpu, *([self.host] if exclusive else [])}


def kind_facts(facts: Record) -> Record:
    """The facts that all workers of one study must agree on."""
    return {"code": facts["code"], **{name: value for name, value in facts["header"].items() if name != "uuid"}}


def difference(facts: Record, usual: Record) -> str:
    """How a worker's kind differs from the usual one, in words."""
    ours, theirs = kind_facts(facts), kind_facts(usual)
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return ", ".join(f"{name} {ours.get(name)} instead of {theirs.get(name)}" for name in names)


@dataclass
class Task:
    """A call for one worker.

    ``suits`` or ``address`` selects workers; ``done`` gets the worker and the result, ``lost`` a worker that ended
    during the task.  Both return follow-up tasks.
    """

    label: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    suits: Callable[[Worker], bool] = lambda worker: True
    done: Callable[[Worker, Any], Iterable["Task"]] = lambda worker, result: ()
    lost: Callable[[Worker], Iterable["Task"]] = lambda worker: ()
    address: str = ""

    def may_run_on(self, worker: Worker) -> bool:
        """Whether the worker may run it."""
        return worker.address == self.address if self.address else self.suits(worker)


Heard = Callable[[Worker, str, list[Any]], None]  # a worker's message: its kind and content


class Pool:
    """Workers that run tasks; a context manager.  ``mixed`` says what to do with workers of a minority kind."""

    def __init__(
        self, client: Any, request: Request, say: Say, *, exclusive: bool = False, mixed: str = REFUSE
    ) -> None:
        self.client, self.request, self.say = client, request, say
        self.exclusive, self.mixed = exclusive, mixed
        self.workers: dict[str, Worker] = {}  # by address; those that may get tasks
        self.batch: Callable[[], AbstractContextManager[None]] = nullcontext  # around the handling of queued messages
        self.welcome: Callable[[Worker], Iterable[Task]] = lambda worker: ()  # a new worker's tasks, before all others
        self.ever: dict[str, Worker] = {}  # ended ones too: their last message may come after their end
        self._pending_facts: dict[str, Any] = {}  # futures of the facts of new workers
        self._left_out: set[str] = set()
        self._running: dict[str, tuple[Any, Task, Worker]] = {}  # by the worker's address
        self._inbox: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._looked = 0.0
        self._usual: Record | None = None

    def __enter__(self) -> "Pool":
        self.client.subscribe_topic(self.request.topic, lambda event: self._inbox.put(("message", event[1])))
        self._await_first()
        return self

    def __exit__(self, *failure: object) -> None:
        if self.client.status != "running":
            return
        with suppress(Exception):  # the scheduler may be gone before the client's status says so
            for future, _, _ in self._running.values():
                future.cancel()
            self.client.unsubscribe_topic(self.request.topic)
            for address in self.workers if not self._running else ():
                with suppress(OSError, TimeoutError):
                    self._submit(remote.close, (self.request,), address).exception(timeout=5)

    def kinds(self) -> list[str]:
        """The kinds of workers, the most common first."""
        return [kind for kind, _ in Counter(worker.kind for worker in self.workers.values()).most_common()]

    def of_kind(self, kind: str) -> list[Worker]:
        """The workers of a kind."""
        return [worker for worker in self.workers.values() if worker.kind == kind]

    def first(self) -> Worker:
        """A worker of the most common kind."""
        return self.of_kind(self.kinds()[0])[0]

    def at_once(self) -> list[Worker]:
        """Workers that can each run a task at the same time, as many as there are."""
        taken: set[str] = set()
        workers = []
        for worker in self.workers.values():
            tokens = worker.tokens(exclusive=self.exclusive)
            if taken.isdisjoint(tokens):
                taken |= tokens
                workers.append(worker)
        return workers

    def one_of_each(self, part: Callable[[Worker], str]) -> list[Worker]:
        """A worker for each value of ``part``, such as each host or cache."""
        return list({part(worker): worker for worker in reversed(self.workers.values())}.values())

    def run(self, tasks: Iterable[Task], heard: Heard = lambda worker, kind, content: None) -> None:
        """Runs tasks in order, as workers become free, and their follow-up tasks.  Raises ClusterLost."""
        waiting = list(tasks)
        stuck_since: float | None = None
        while waiting or self._running:
            if monotonic() - self._looked > LOOK_S:
                waiting = [*self._look(), *waiting]
            waiting = self._start(waiting)
            stuck_since = None if self._running or not waiting else stuck_since or monotonic()
            if stuck_since and monotonic() - stuck_since > PATIENCE_S:
                raise ClusterLost("no worker is left: run the same command with --resume to continue")
            waiting = [*self._hear(heard), *waiting]

    def call(self, worker: Worker, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of one call on a worker, or on another of its kind that shares its cache.  Raises ClusterLost."""
        results: list[Any] = []
        ended: list[str] = []

        def done(_: Worker, result: Any) -> Iterable[Task]:
            results.append(result)
            return ()

        def lost(on: Worker) -> Iterable[Task]:
            ended.append(on.name)
            return [task] if len(ended) < MOST_ENDS else []

        def suits(candidate: Worker) -> bool:
            return (candidate.kind, candidate.store) == (worker.kind, worker.store)

        task = Task(function.__name__, function, arguments, suits, done, lost)
        self.run([task])
        if not results:
            raise ClusterLost(f"{MOST_ENDS} workers ended during one call: {', '.join(ended)}")
        return results[0]

    def _submit(self, call: Callable[..., Any], arguments: tuple[Any, ...], address: str) -> Any:
        key = f"{call.__name__}-{uuid4().hex}"
        return self.client.submit(
            call, *arguments, key=key, workers=[address], allow_other_workers=False, pure=False, retries=0
        )

    def _await_first(self) -> None:
        """Waits until all present workers have reported their facts; raises MissingTool if none comes."""
        began = monotonic()
        problems: list[str] = []
        while not self.workers or self._pending_facts:
            self._look(problems)
            if not self.workers and (monotonic() - began > START_S or (problems and not self._pending_facts)):
                raise MissingTool("; ".join(dict.fromkeys(problems)) or "the cluster has no workers")
            sleep(0.1)
        kinds = self.kinds()
        self._usual = self.of_kind(kinds[0])[0].facts
        for worker in list(self.workers.values()):
            self._refuse_other_kind(worker)

    def _refuse_other_kind(self, worker: Worker) -> None:
        if self._usual and self.mixed == REFUSE and kind_facts(worker.facts) != kind_facts(self._usual):
            differences = difference(worker.facts, self._usual)
            advice = "--mixed apart records its points in a separate file"
            line = f"{worker.name} is left out: it has {differences}; {advice}"
            self.leave_out(worker.address, line)

    def at_work(self) -> list[Worker]:
        """The workers that have a task now."""
        return [worker for _, _, worker in self._running.values()]

    def leave_out(self, address: str, line: str) -> None:
        """Gives a worker no more tasks, and says why."""
        self.say(line)
        self._left_out.add(address)
        self.workers.pop(address, None)

    def _look(self, problems: list[str] | None = None) -> list[Task]:
        """Notes workers that came or went; returns follow-up tasks."""
        self._looked = monotonic()
        if self.client.status != "running":
            raise self._scheduler_lost()
        try:
            there = set(self.client.nthreads())
        except (OSError, TimeoutError, ValueError):
            raise self._scheduler_lost() from None
        tasks: list[Task] = []
        for address in [address for address in self.workers if address not in there]:
            tasks += self._gone(address)
        self._pending_facts = {address: future for address, future in self._pending_facts.items() if address in there}
        for address in there - self.workers.keys() - self._pending_facts.keys() - self._left_out:
            self._pending_facts[address] = self._submit(remote.facts, (self.request,), address)
        finished = {address: future for address, future in self._pending_facts.items() if future.done()}
        for address, future in finished.items():
            del self._pending_facts[address]
            if future.status != "finished":
                error = future.exception() if future.status == "error" else None
                reason = str(error) if isinstance(error, AlexconvError) else f"{type(error).__name__}: {error}"
                if problems is not None:
                    problems.append(reason)
                self.leave_out(address, f"the worker at {address} is left out: {reason}")
                continue
            try:
                worker = Worker(address, future.result(timeout=RESULT_S))
            except Exception:  # the worker ended, and its result is lost
                continue
            self.workers[address] = self.ever[address] = worker
            self._refuse_other_kind(worker)
            if address in self.workers:
                tasks += self.welcome(worker)
        return tasks

    def _scheduler_lost(self) -> ClusterLost:
        return ClusterLost("the scheduler no longer answers: run the same command with --resume to continue")

    def _gone(self, address: str) -> list[Task]:
        """Removes a worker that is gone; returns follow-up tasks."""
        worker = self.workers.pop(address)
        if address not in self._running:
            return []
        future, task, _ = self._running.pop(address)
        future.cancel()
        return list(task.lost(worker))

    def _start(self, waiting: Sequence[Task]) -> list[Task]:
        """Assigns tasks to free workers; returns those that are left."""
        left: list[Task] = []
        taken = {token for _, _, worker in self._running.values() for token in worker.tokens(exclusive=self.exclusive)}
        free = [worker for worker in self.workers.values() if taken.isdisjoint(worker.tokens(exclusive=self.exclusive))]
        for task in waiting:
            if task.address and task.address not in self.workers:
                left += task.lost(self.ever[task.address])
                continue
            worker = next((candidate for candidate in free if task.may_run_on(candidate)), None)
            if worker is None:
                left.append(task)
                continue
            future = self._submit(task.call, task.arguments, worker.address)
            self._running[worker.address] = future, task, worker
            future.add_done_callback(partial(self._ended, worker.address))
            tokens = worker.tokens(exclusive=self.exclusive)
            free = [candidate for candidate in free if tokens.isdisjoint(candidate.tokens(exclusive=self.exclusive))]
        return left

    def _ended(self, address: str, future: Any) -> None:
        self._inbox.put(("ended", (address, future)))

    def _hear(self, heard: Heard) -> list[Task]:
        """Waits for a message until the next poll at most, and handles all in the queue; returns follow-up tasks."""
        tasks: list[Task] = []
        wait = max(LOOK_S - (monotonic() - self._looked), 0.001)
        with suppress(Empty):
            messages = [self._inbox.get(timeout=wait)]
            with suppress(Empty):
                while True:
                    messages.append(self._inbox.get_nowait())
            with self.batch():
                for message in messages:
                    tasks += self._taken(message, heard)
        return tasks

    def _taken(self, message: tuple[str, Any], heard: Heard) -> Iterable[Task]:
        kind, content = message
        if kind == "message":
            if worker := self.ever.get(content["worker"]):
                heard(worker, content["kind"], json.loads(content["content"]))
            return ()
        address, future = content
        running = self._running.get(address)
        if running is None or running[0] is not future:
            return ()  # from a worker that is gone: its task was reassigned
        del self._running[address]
        _, task, worker = running
        if future.status == "finished":
            try:
                result = future.result(timeout=RESULT_S)
            except Exception:  # the worker ended, and its result is lost
                self.workers.pop(address, None)
                return task.lost(worker)
            return task.done(worker, result)
        error = future.exception() if future.status == "error" else None
        if isinstance(error, AlexconvError):  # a fault of its disk, compiler or driver
            self.leave_out(address, f"{worker.name} is left out: {error}")
        elif error is not None and type(error).__name__ != "KilledWorker":
            raise error  # a bug in this project
        else:
            self.workers.pop(address, None)  # if it comes back, it counts as new
        return task.lost(worker)

    def restart(self, worker: Worker) -> None:
        """Has a worker's nanny restart it, after its device was lost."""
        self.workers.pop(worker.address, None)
        try:
            self.client.restart_workers([worker.address], timeout=30, raise_for_error=True)
            self.say(f"{worker.name} is restarted: its device no longer answered")
        except Exception as error:  # whatever Dask raises for a worker without a nanny
            self.leave_out(
                worker.address, f"{worker.name} is left out: its device no longer answers ({type(error).__name__})"
            )
