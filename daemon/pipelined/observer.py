# SPDX-License-Identifier: Apache-2.0
"""BPF programs, sweep and model, running together, and the methods that read their results."""

from __future__ import annotations

import gc
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pipelined.config import Config
from pipelined.errors import UserError
from pipelined.kernel.cgroups import NotedCgroups
from pipelined.kernel.checkpoint import NOTHING
from pipelined.kernel.checkpoint_file import CheckpointFile
from pipelined.kernel.loader import Hook, Loaded, load
from pipelined.kernel.pace import Steady
from pipelined.kernel.sweep import MapUse, Sweep, monotonic_to_unix
from pipelined.model.coverage import Coverage
from pipelined.model.cpu_accounts import CpuAccounts
from pipelined.model.identities import Identities, origin_mark
from pipelined.model.neighbours import Neighbours
from pipelined.model.sighting import Finished
from pipelined.model.timeline import STEP_NS
from pipelined.model.tracker import Budget, Lookups, Model, SeriesUse, StartedRuns
from pipelined.model.units import CgroupNames, find_cgroup2, read_known
from pipelined.model.users import Users
from pipelined.model.views import Totals
from pipelined.model.watched import Watched
from pipelined.records.process import Process
from pipelined.records.stage import Gap
from pipelined.runs import Run, Series, Timeline
from pipelined.saver import Saver, finish_cut_off
from pipelined.starter import Starter, boot_id, host_mark
from pipelined.wording import duration

__all__ = ["Hook", "MapUse", "Observer", "SweepStats"]

log = logging.getLogger(__name__)

#: Series of --metrics.max-series that are not for pipelines: the daemon's own.
_OWN_SERIES = 500

#: How the names of the hooks end that count the bytes at the ends of pipes.
_PIPE_BYTES = ("pipe_read", "pipe_write", "do_splice", "do_tee", "vmsplice")


@dataclass(slots=True)
class SweepStats:
    """What sweeping cost so far."""

    count: int = 0
    seconds_total: float = 0.0
    last_time: float = 0.0
    failures: int = 0


class Observer(AbstractContextManager["Observer"]):
    """Watches pipelines from `open` to `close`. Every method may be called from any thread."""

    def __init__(
        self, loaded: Loaded, sweep: Sweep, model: Model, hooks: tuple[Hook, ...], pace: Steady
    ):
        self.loader = loaded.loader
        """The loader that was used: libbpf or bcc."""
        self.daemon: str | None = None
        """The address of whoever observes in its place: nobody does."""
        self._loaded = loaded
        self._sweep = sweep
        self._model = model
        self._hooks = hooks
        self._pace = pace
        self._cgroups = CgroupNames(None)
        self._lock = threading.Lock()
        self._stop = os.eventfd(0)
        self._thread: threading.Thread | None = None
        self._closed = False
        self._reason: str | None = "the first sweep is not done yet"
        self._repeated_seconds = 0.0
        self._saver: Saver | None = None
        self._finish_cut_off: Callable[[], int] | None = None
        self._watched = Watched(monotonic_to_unix())
        self.sweep_stats = SweepStats()
        self.opened = time.time()
        """Since when it observes (Unix time)."""

    @classmethod
    def open(
        cls,
        config: Config,
        *,
        own_only: bool = False,
        all_alone: bool = False,
        wait: bool = True,
        pace: Steady | None = None,
        on_finished: Callable[[Finished], object] | None = None,
        is_stored: Callable[[str], bool] = lambda _: False,
        series_of: Callable[[Totals], int] = lambda _: 0,
        state: Path | None = None,
    ) -> Observer:
        """Load and attach the programs; `UserError` if that is not possible.

        With `own_only` only processes that this process forks from now on are followed. With
        `all_alone` programs that read are a pipeline of one stage when they are in no other.
        Without `wait` the optional hooks are left for `attach_optional`, unless the configuration
        demands some of them. `on_finished` is called for each run that ends, in the middle of a
        sweep; `is_stored` as in `Model`. `pace`: when sweeps are made, by default at the interval
        of the configuration. `series_of` is how many series the totals of a pipeline are exported
        as. What lives is saved in the directory `state`, and what was saved there is resumed; runs
        that were saved before a reboot are finished once the optional hooks are attached.
        """
        stages = config.max_stages
        host, boot = config.host_name or socket.gethostname(), boot_id()
        file = CheckpointFile.open(state) if state else None
        saved = file.read(max_stages=stages, read_cgroup=read_known) if file else None
        rebooted = saved is not None and saved[0].boot_id != boot
        checkpoint, restored = saved if saved and not rebooted else (None, NOTHING)
        loaded = load(
            {
                "stages": stages + 1,
                "functions": stages + 1,
                "readahead": stages + 1,
                "children": stages + 1,
                "free_stages": stages,
                "pipes": config.max_pipes,
                "saved_tasks": len(restored.tasks) or 1,
            },
            loader=config.loader,
            path=config.object,
            trace_exec_failures=config.trace_exec_failures,
            functions=config.functions != "off",
            readahead=config.readahead != "off",
        )
        file = file and file.usable()
        try:
            sweep = Sweep(
                loaded,
                max_stages=stages,
                max_pipes=config.max_pipes,
                interpreters=config.interpreters,
                wrappers=config.wrappers,
                shells=config.shells,
                alone=config.alone,
                alone_units=config.alone_units,
                schedulers=config.schedulers,
                job_variables=config.job_variables,
                instance_variables=config.kept_variables,
                max_readers=config.max_readers,
                own_only=own_only,
                all_alone=all_alone,
                restored=restored,
            )
            resumed = sweep.restored()
            hooks = loaded.attach()
            resumed_ns = sweep.resume()
            wait = wait or "on" in (config.functions, config.readahead)
            hooks += loaded.attach_optional() if wait else loaded.pending()
            sweep.began()
            for tier, wanted in (("functions", config.functions), ("readahead", config.readahead)):
                if wanted == "on":
                    _require(tier, hooks)
        except BaseException:
            loaded.close()
            if file:
                file.close()
            raise
        pace = pace or Steady(config.sweep_interval)
        cgroups = CgroupNames(find_cgroup2(), NotedCgroups(loaded), node=host)
        gaps: tuple[Gap, ...] = ()
        if checkpoint:
            cgroups.remember(checkpoint.cgroups)
            gap = Gap(checkpoint.watched_ns, resumed_ns, checkpoint.unix)
            gaps = (*checkpoint.gaps, gap)
            log.info(
                "%d live stages are resumed, after %.1f s in which nobody watched",
                len(restored.stages),
                (gap.end_ns - gap.begin_ns) / 1e9,
            )
        cgroups.read_names()
        mark = (checkpoint and checkpoint.origin) or origin_mark(host, boot)
        watched = Watched(monotonic_to_unix(), gaps)
        accounts = CpuAccounts(path_of=cgroups.path)
        new_model = partial(
            Model,
            coverage=Coverage(
                exec_failures=_count_exec_failures(hooks),
                pipe_bytes=_count_pipe_bytes(hooks),
                pending_tiers=None if wait else {h.tier for h in hooks if h.pending} - {"sched"},
            ),
            harmless=_by_command(config.harmless_exits),
            exported=config.traces_exported,
            on_finished=on_finished,
            is_stored=is_stored,
        )
        model = new_model(
            watched,
            Lookups(
                cgroups.unit, Process.arguments if config.show_arguments else None, cgroups.place
            ),
            recent_runs=config.recent_runs,
            budget=Budget(config.metrics_max_series - _OWN_SERIES, series_of),
            neighbours=Neighbours(accounts, accounts.own_group() if own_only else None),
            identities=Identities(host, boot, mark, Users().name),
            step_ns=pace.step_ns or STEP_NS,
        )
        model.resume(resumed)
        observer = cls(loaded, sweep, model, hooks, pace)
        observer._cgroups, observer._watched = cgroups, watched
        if file:
            this = host_mark(host)
            observer._saver = Saver(file, watched, cgroups, mark, host=this, is_empty=saved is None)
            if saved and rebooted and saved[0].host == this:
                observer._finish_cut_off = partial(finish_cut_off, *saved, host, new_model)
            elif rebooted:  # of a disk that was copied: its runs are that host's
                log.info("%s is not known to be of this host: nothing to finish", file.path)
        observer.sweep()
        return observer

    def attach_optional(self) -> None:
        """Load and attach the hooks that `open` has left; what fails is off.

        Needs the privileges that `open` needs. Returns once it is done, after 0.1 to 0.3 s: it is
        for a thread of its own. `close` must not be called meanwhile.
        """
        pending = [hook for hook in self._hooks if hook.pending]
        if not pending:
            return
        try:
            hooks = self._loaded.attach_optional()
        except Exception as error:
            log.exception("the optional hooks cannot be attached")
            why = f"{type(error).__name__}; see the log"
            hooks = tuple(replace(hook, pending=False, reason=why) for hook in pending)
        with self._lock:
            self._hooks = (*(hook for hook in self._hooks if not hook.pending), *hooks)
            try:
                self._sweep.map_tiers()
            finally:
                self._model.coverage.complete(
                    time.monotonic(),
                    self._loaded.tiers(),
                    exec_failures=_count_exec_failures(hooks),
                    pipe_bytes=_count_pipe_bytes(hooks),
                )

    def start(self) -> None:
        """Sweep from now on: at intervals, and when the kernel side asks for it."""
        self._thread = threading.Thread(target=self._work, name="sweep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Detach everything; the runs and totals known so far stay available."""
        if self._closed:
            return
        os.eventfd_write(self._stop, 1)
        if self._thread:
            self._thread.join()
        if self._saver:
            try:
                self._update(save=True)
            except Exception:
                log.exception("what lives cannot be saved")
        with self._lock:
            self._closed = True
            self._reason = "the daemon is stopping"
            self._sweep.close()
        if self._saver:
            self._saver.close()
        os.close(self._stop)

    def sweep(self) -> None:
        """Bring runs and totals up to now."""
        self._update()

    def settle(self, starter: Starter | None = None) -> None:
        """Sweep, and count every run whose processes are all gone as finished.

        Given a process, only the runs that it started.
        """
        self._update(settle=starter or True)

    def compared(self, series: Series, usual_ratio: float | None) -> None:
        """How many times as long as usual a run took that has ended; None: that is not known."""
        with self._lock:
            self._model.compared(series, usual_ratio)

    def totals(self) -> Mapping[Series, Totals]:
        with self._lock:
            return self._model.totals()

    def counted(self) -> tuple[Mapping[Series, Totals], SeriesUse]:
        """The totals, and how much of --metrics.max-series they use."""
        with self._lock:
            return self._model.totals(), self._model.series_use()

    def runs(self) -> list[Run]:
        with self._lock:
            return self._model.runs()

    def started(self, starter: Starter, after: int = 0) -> StartedRuns:
        """The runs that a process started: finished ones but the first `after`, and live ones."""
        with self._lock:
            return self._model.started(starter, after)

    def conversations(self) -> list[Run]:
        """Live stages that talk both ways, which are no pipelines: they are in no other list."""
        with self._lock:
            return self._model.conversations()

    def live(self) -> int:
        """How many runs are live."""
        with self._lock:
            return self._model.live

    def ended(self) -> int:
        """How many runs have ended, those that `runs` no longer returns among them."""
        with self._lock:
            return self._model.ended_runs

    def short_runs(self) -> Mapping[str, int]:
        """How many short runs ended in the last minute, by signature (`model.short_runs`)."""
        with self._lock:
            return self._model.short_runs()

    def timeline(self, run_id: str) -> Timeline | None:
        """The time line of a live or recent run; None for others, and once it is forgotten."""
        with self._lock:
            return self._model.timeline(run_id)

    def hooks(self) -> list[Hook]:
        """All hooks, those that are still to be attached too."""
        return list(self._hooks)

    def lost(self) -> Mapping[str, int]:
        with self._lock:
            return {} if self._closed else self._sweep.lost()

    def missed_switches(self) -> int:
        """Switches to threads of stages that the kernel did not trace, since the start."""
        with self._lock:
            return 0 if self._closed else self._sweep.missed_switches()

    def missed_events(self) -> Mapping[str, int]:
        """Events for which the kernel did not run a program, by hook, since the start."""
        with self._lock:
            return {} if self._closed else self._sweep.missed_events()

    def maps(self) -> list[MapUse]:
        with self._lock:
            return self._sweep.maps()

    def ready(self) -> str | None:
        """None if the numbers are current, else the reason why not."""
        return self._reason

    def _update(self, *, settle: bool | Starter = False, save: bool = False) -> None:
        """Sweep. With `save`, leave what lives to the next daemon: asked for by one thread only."""
        checkpoint = None
        with self._lock:
            if self._closed:
                return
            # what was saved before has the figures of the optional tiers, which are not read yet
            save = save and not self._model.coverage.pending
            if self._finish_cut_off and not self._model.coverage.pending:
                # before the file that has them is replaced
                _log_cut_off(self._finish_cut_off)
                self._finish_cut_off = None
            self._cgroups.keep_up()
            if step := self._watched.follow(time.monotonic_ns(), monotonic_to_unix()):
                way = "forward" if step > 0 else "back"
                log.warning(
                    "the clock was set %s by %s: what happens from now on is dated by it",
                    *(way, duration(abs(step))),
                )
            began, worked = time.monotonic(), time.thread_time()
            # records have no cycles: while they are all alive there is nothing to find
            gc.disable()
            try:
                groups = self._sweep.take(keep=save)
                # after that: none that concerns what was taken is seen by the next sweep only
                missed = self._loaded.missed_events(_PIPE_BYTES)
                self._model.coverage.missed(time.monotonic(), sum(missed.values()))
                over = self._model.update(groups, began, settle=settle)
                self._sweep.free(over)
                if self._saver:
                    self._saver.seen(self._model.unfinished())
            except Exception:
                self.sweep_stats.failures += 1
                self._reason = "the last sweep failed; see the log"
                raise
            finally:
                gc.enable()
            self._reason = None
            took = time.monotonic() - began
            read = sum(len(group.stages) for group in groups)
            self._repeated_seconds = (time.thread_time() - worked) * (1 - len(over) / (read or 1))
            stats = self.sweep_stats
            stats.count += 1
            stats.seconds_total += took
            stats.last_time = time.time()
            if save and self._saver:
                checkpoint = self._saver.checkpoint(self._sweep, self._model.unfinished())
        if save and self._saver:
            self._saver.write(checkpoint)

    def _work(self) -> None:
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(self._sweep.fileno(), select.POLLIN)
        while True:
            ready = poll.poll(self._pace.wait(self._repeated_seconds) * 1000)
            if any(fd == self._stop for fd, _ in ready):
                return
            try:
                self._update(save=self._saver is not None and self._saver.is_due())
            except Exception:
                log.exception("sweep failed")

    def __exit__(self, *exception: object) -> None:
        self.close()


def _log_cut_off(finish: Callable[[], int]) -> None:
    """Finish what lived when the host went down, and log how many runs those were."""
    try:
        count = finish()
    except Exception:
        log.exception("runs that lived when the host went down cannot be finished")
        return
    if count:
        log.warning("runs that the host's last boot left without a record of their end: %d", count)
    else:
        log.info("all runs of the host's last boot are stored already")


def _by_command(exits: Iterable[str]) -> dict[str, set[int]]:
    """Of texts such as ``grep=1``, the exit codes of each command."""
    found: dict[str, set[int]] = {}
    for text in exits:
        command, _, code = text.rpartition("=")
        found.setdefault(command, set()).add(int(code))
    return found


def _count_exec_failures(hooks: Iterable[Hook]) -> bool:
    return any("execve" in hook.name and hook.attached for hook in hooks)


def _count_pipe_bytes(hooks: Iterable[Hook]) -> bool:
    """Whether every byte at the ends of pipes is counted: read, written and spliced."""
    counting = {hook.name for hook in hooks if hook.attached and hook.method == "fexit"}
    return all(any(name.endswith(end) for name in counting) for end in _PIPE_BYTES)


def _require(tier: str, hooks: Sequence[Hook]) -> None:
    for hook in hooks:
        if hook.tier == tier and not hook.attached:
            raise UserError(
                f"--{tier}=on, but {hook.name} cannot be hooked: {hook.reason}",
                f"use --{tier}=auto to run without the tier; `pipelined doctor` says more",
            )
