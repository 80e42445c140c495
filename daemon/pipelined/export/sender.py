# SPDX-License-Identifier: Apache-2.0
"""Follows the finished runs of a daemon and sends them, each at least once.

The history is the queue: nothing waits here but the page that is being sent. The place in the order
is saved after the back end has taken what comes before it, so whoever is killed between the two
sends some runs again, as the same spans.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from opentelemetry.sdk.trace import ReadableSpan

from pipelined.analysis.findings import findings
from pipelined.errors import UserError
from pipelined.export.attributes import Beside
from pipelined.export.back_end import Answer
from pipelined.export.place import Place
from pipelined.export.spans import SpanMaker
from pipelined.export.statistics import Statistics
from pipelined.runs import Run
from pipelined.runs.codec import read
from pipelined.terminal.followed_runs import Followed, FollowedPage, pauses

__all__ = ["Sender"]

#: A request has at most this many spans, or those of one run.
MOST_SPANS = 512
#: Seconds until what failed is tried again: at first, and at most.
RETRY, LONGEST_RETRY = 1.0, 60.0
#: Seconds between requests to a daemon that answers at once that there is no run.
PAUSE = 2.0

log = logging.getLogger(__name__)


class Sends(Protocol):
    """A back end."""

    def send(self, spans: Sequence[ReadableSpan]) -> Answer: ...


class _Ready(NamedTuple):
    """A run to be sent."""

    run: Followed
    spans: list[ReadableSpan]


class Sender:
    """Sends what `fetch` returns, from the cursor that is saved on."""

    def __init__(
        self,
        fetch: Callable[[str], FollowedPage],
        back_end: Sends,
        place: Place,
        statistics: Statistics,
        *,
        chosen: Callable[[Followed], bool],
        sleep: Callable[[float], object],
        clock: Callable[[], float],
        unstopped: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """`chosen`: whether to send a run. `sleep` and `clock` are those of `time`.

        A stop waits for the end of what `unstopped` returns: of a request and what is noted of it.
        """
        self._fetch = fetch
        self._back_end = back_end
        self._place = place
        self._statistics = statistics
        self._chosen = chosen
        self._sleep = sleep
        self._clock = clock
        self._unstopped = unstopped
        self._spans = SpanMaker()
        self._missing = 0
        """Runs that the pages since the last complete one lack."""
        self._reported = ""
        """The failure that was logged last; empty if all is well."""
        self._saved = ""
        """The cursor that is in the file."""
        self._unsaved = ""
        """Why it cannot be written, as it was logged; empty if it can."""

    def follow(self, after: str) -> None:
        """Send the runs that are stored after the cursor, without end. Raises UserError."""
        self._saved = self._place.read() or ""
        while True:
            began = self._clock()
            page = self._page(after)
            self._note(page)
            self._send_all(page)
            after = page.next
            self._save(after)
            self._statistics.waiting_since = None
            if not page.runs and self._clock() - began < PAUSE:
                self._sleep(PAUSE)

    def _page(self, after: str) -> FollowedPage:
        """The next page, in the end."""
        for pause in pauses(RETRY, LONGEST_RETRY):
            try:
                page = self._fetch(after)
            except UserError as error:
                self._failed("daemon", str(error))
                self._sleep(pause)
                continue
            self._answered("daemon")
            return page
        raise AssertionError("pauses have no end")

    def _note(self, page: FollowedPage) -> None:
        if page.restarted:
            log.warning("the history is another one, or an earlier state of it: its runs are sent")
        if page.missing:
            self._statistics.skipped_runs.labels("missing").inc(page.missing)
            self._missing += page.missing
        if self._missing and not page.more:
            log.warning("%d runs were no longer in the history", self._missing)
            self._missing = 0

    def _send_all(self, page: FollowedPage) -> None:
        """Send the runs of a page, and save the place after each request."""
        for batch in _batches(self._ready(page)):
            self._statistics.waiting_since = batch[0].run.row.end
            self._send(batch)

    def _save(self, cursor: str) -> None:
        """Save the place. Raises UserError if that fails and there is none from before.

        Else (a full disk) it goes on without: what is sent meanwhile is sent again after a stop.
        """
        if cursor == self._saved:
            return
        try:
            self._place.save(cursor)
        except UserError as error:
            if not self._saved:
                raise
            if error.message != self._unsaved:
                self._unsaved = error.message
                log.error("%s; runs are sent all the same", error.message)
            return
        self._saved = cursor
        if self._unsaved:
            self._unsaved = ""
            log.info("the place in the order of the runs can be saved again")

    def _ready(self, page: FollowedPage) -> Iterator[_Ready]:
        for followed in page.runs:
            if not self._chosen(followed):
                self._statistics.skipped_runs.labels("filter").inc()
                continue
            run = read(Run, followed.described)
            if not run.sampled:
                self._statistics.skipped_runs.labels("not_sampled").inc()
                continue
            row = followed.row
            beside = Beside(row.bottleneck, row.usual, row.slower)
            found = findings(run, page.machine)
            yield _Ready(followed, self._spans.spans(run, beside, found))

    def _send(self, batch: Sequence[_Ready]) -> None:
        """Send these runs, or, if the back end cannot use them, those of them that it can.

        The place after them is saved: the back end has taken them, or never will.
        """
        spans = [span for ready in batch for span in ready.spans]
        for pause in pauses(RETRY, LONGEST_RETRY):
            with self._unstopped():
                answer = self._back_end.send(spans)
                if answer.sent or (answer.unusable and len(batch) == 1):
                    self._answered("back_end")
                    self._count(batch, answer)
                    self._save(batch[-1].run.described["cursor"])
                    return
            if answer.unusable:
                self._answered("back_end")
                middle = len(batch) // 2
                self._send(batch[:middle])
                self._send(batch[middle:])
                return
            self._failed("back_end", answer.error)
            self._sleep(max(pause, answer.pause or 0.0))

    def _count(self, batch: Sequence[_Ready], answer: Answer) -> None:
        """Count what became of a request that will not be sent again."""
        statistics = self._statistics
        if not answer.sent:
            statistics.skipped_runs.labels("refused").inc()
            log.error("run %s is skipped: %s", batch[0].run.row.id, answer.error)
            return
        spans = sum(len(ready.spans) for ready in batch)
        rejected = min(spans, answer.rejected_spans)
        statistics.sent_runs.inc(len(batch))
        statistics.sent_spans.inc(spans - rejected)
        statistics.rejected_spans.inc(rejected)
        statistics.last_sent.set_to_current_time()
        if rejected:
            log.warning("the back end rejects spans: %s", answer.error or "it does not say why")

    def _failed(self, at: str, error: str) -> None:
        self._statistics.failed(at)
        if error != self._reported:
            self._reported = error
            log.warning("%s; it is asked again", error)

    def _answered(self, at: str) -> None:
        self._statistics.answered(at)
        if self._reported:
            self._reported = ""
            log.info("the %s answers again", at.replace("_", " "))


def _batches(ready: Iterable[_Ready]) -> Iterator[list[_Ready]]:
    """Runs of together at most `MOST_SPANS` spans."""
    batch: list[_Ready] = []
    size = 0
    for one in ready:
        if batch and size + len(one.spans) > MOST_SPANS:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one.spans)
    if batch:
        yield batch
