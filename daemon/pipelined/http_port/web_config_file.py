# SPDX-License-Identifier: Apache-2.0
"""A web configuration in use: read at the start, and again when its files have changed.

The file and the files that it names are looked at while the port is used, at most once a second,
and read again at SIGHUP. If that fails, what was read before stays in use, and the next look tries
again. So what fails for a while (EMFILE, EIO) needs no change of a file to be read in the end.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipelined.config import Address
from pipelined.errors import ConfigurationError
from pipelined.http_port.basic_auth import Logins
from pipelined.http_port.exposure import unauthenticated
from pipelined.http_port.tls import TlsError, Wanted, context_of, expiry_of
from pipelined.http_port.web_config import TlsSettings, WebConfig, read

if TYPE_CHECKING:
    import ssl

__all__ = ["WebConfigFile"]

log = logging.getLogger(__name__)

#: Seconds from one look at the files to the next, while the port is used.
_LOOK_PACE = 1.0


@dataclass(frozen=True, slots=True)
class _InUse:
    config: WebConfig
    context: ssl.SSLContext | None
    expiry: float | None
    logins: Logins | None


class WebConfigFile:
    """A web configuration in use. Thread-safe."""

    def __init__(
        self,
        path: Path,
        *,
        exposed_at: Address | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Reads the file and what it names; raises ConfigurationError.

        `exposed_at` is where other hosts reach the port, if they may not without a password or a
        certificate: then a file that asks for neither is wrong, also later.
        """
        self._path = path
        self._exposed_at = exposed_at
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._looked = clock()
        self._seen: Mapping[Path, object] = {}
        self._in_use: _InUse | None = None
        self._failure = ""
        self.last_reload_success_time = 0.0
        """When they were read and right last (Unix time)."""
        with self._lock:
            self._load()

    @property
    def last_reload_successful(self) -> bool:
        """Whether the files could be read, and were right, when that was last tried."""
        return not self._failure

    @property
    def tls(self) -> bool:
        """Whether the port speaks TLS; for as long as the daemon runs."""
        return self._now().context is not None

    @property
    def requires_authentication(self) -> bool:
        """Whether clients need a password or a certificate."""
        return self._now().config.requires_authentication

    @property
    def certificate_expiry(self) -> float | None:
        """When the certificate stops being valid (Unix time); None without TLS."""
        return self._now().expiry

    def reload(self) -> None:
        """Read the files again.

        Raises ConfigurationError, whatever goes wrong: what was read before stays in use.
        """
        with self._lock:
            self._read_again()

    def current(self) -> tuple[WebConfig, Logins | None]:
        """What holds for a request now: reads changed files first, if it has not just looked."""
        self._look()
        now = self._now()
        return now.config, now.logins

    def tls_in_use(self) -> tuple[ssl.SSLContext, frozenset[str]]:
        """For a new connection: the context, and the names of clients that are let in (none: all).

        Only if `tls`.
        """
        self._look()
        now = self._now()
        assert now.context is not None and now.config.tls is not None
        return now.context, now.config.tls.allowed_names

    def _now(self) -> _InUse:
        assert self._in_use is not None
        return self._in_use

    def _look(self) -> None:
        if self._clock() - self._looked < _LOOK_PACE or not self._lock.acquire(blocking=False):
            return  # looked just now, or somebody does
        try:
            self._looked = self._clock()
            reported = self._failure
            if not reported and all(_state(path) == state for path, state in self._seen.items()):
                return
            self._read_again()
            log.info("%s: read again", self._path)
        except ConfigurationError:
            if self._failure != reported:
                log.error("%s; what was read before stays in use", self._failure)
        finally:
            self._lock.release()

    def _read_again(self) -> None:
        try:
            self._load()
        except Exception as error:
            if not isinstance(error, ConfigurationError):
                error = ConfigurationError(f"{self._path}: {error!r}")
            self._failure = str(error)
            raise error from None
        self._failure = ""

    def _load(self) -> None:
        seen = {self._path: _state(self._path)}
        config = read(self._path)
        seen |= {path: _state(path) for path in config.files}
        before = self._in_use
        if before and (config.tls is None) != (before.context is None):
            raise ConfigurationError(
                f"{self._path}: TLS cannot be switched {'on' if config.tls else 'off'}"
                " while pipelined runs",
                "restart it",
            )
        if self._exposed_at and not config.requires_authentication:
            raise unauthenticated(
                self._exposed_at,
                "which commands run here",
                f"give {self._path} basic_auth_users or RequireAndVerifyClientCert, ",
            )
        if self._exposed_at and config.tls is None and before is None:
            log.warning(
                "%s has passwords and no tls_server_config: who listens on the network to %s reads"
                " them; see docs/SECURITY.md",
                *(self._path, self._exposed_at),
            )
        context, expiry = _context(self._path, config.tls) if config.tls else (None, None)
        if before and before.config.users == config.users:
            logins = before.logins  # what it remembers still holds
        else:
            logins = Logins(config.users) if config.users else None
        self._in_use = _InUse(config, context, expiry, logins)
        self._seen = seen
        self.last_reload_success_time = self._wall_clock()


def _state(path: Path) -> object:
    """Something that changes when the file does."""
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    # The ctime changes with the mode and the owner, which decide whether we may read it.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev


def _context(path: Path, tls: TlsSettings) -> tuple[ssl.SSLContext, float]:
    """The context, and when its certificate expires. Raises ConfigurationError."""
    certificate = tls.certificate.read(path)
    wanted = Wanted(
        certificate=certificate,
        key=tls.key.read(path),
        client_ca=tls.client_ca.read(path) if tls.client_ca else None,
        client_required=tls.client_auth == "RequireAndVerifyClientCert",
        min_version=tls.min_version,
        max_version=tls.max_version,
        cipher_suites=tls.cipher_suites,
        prefer_server_cipher_suites=tls.prefer_server_cipher_suites,
        curve=tls.curve,
    )
    try:
        context = context_of(wanted)
    except TlsError as error:
        material = {"cert": tls.certificate, "key": tls.key, "client_ca": tls.client_ca}
        about = material.get(error.part)
        line, name = (about.line, about.key) if about else (tls.line, error.part)
        shown = f"{name} {about.path}" if about and about.path else name
        raise ConfigurationError(f"{path}:{line}: {shown}: {error.reason}", error.hint) from None
    expiry = expiry_of(certificate)
    if expiry < time.time():
        log.warning(
            "%s: the certificate of tls_server_config expired on %s: clients will refuse it;"
            " renew it, and see openssl x509 -noout -enddate -in %s",
            path,
            time.strftime("%Y-%m-%d", time.gmtime(expiry)),
            tls.certificate.path or "FILE",
        )
    return context, expiry
