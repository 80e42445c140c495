# SPDX-License-Identifier: Apache-2.0
"""The one kind of error that a user can cause and fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

__all__ = [
    "INTERRUPTED_STATUS",
    "NO_PROGRAMS",
    "ConfigurationError",
    "NotPermittedError",
    "UserError",
    "nearest",
    "untrusted",
    "why",
]

#: Exit status after Ctrl-C, as a shell has it: 128 and the number of SIGINT.
INTERRUPTED_STATUS = 130
#: Why a user without privileges cannot observe anything.
NO_PROGRAMS = "this user may not load BPF programs"


class UserError(Exception):
    """What went wrong, why, and what to do; printed as one line.

    The exit code is 1, or the `exit_status` of a subclass.

    >>> str(UserError("cannot load BPF programs: not root", "run it with sudo"))
    'cannot load BPF programs: not root; run it with sudo'
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint


class ConfigurationError(UserError):
    """A configuration file, or one that it names, is wrong: as with wrong flags, another try fails.

    `exit_status` is that of wrong flags, after which the service is not started again.
    """

    exit_status = 2


class NotPermittedError(UserError):
    """The kernel does not allow this user to do it: root, or a daemon, could."""


#: What helps against some reasons of OpenSSL's (X509_V_ERR_…) to trust no certificate of a server.
_NOT_ITS_NAME = "write one of the names in it into the address"
_UNTRUSTED = {
    9: "it is not valid yet: are the clocks of both hosts right?",
    10: "renew it there",
    62: _NOT_ITS_NAME,
    64: _NOT_ITS_NAME,
}


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for a name that is not among `known`: which is meant; else `otherwise`, or all."""
    import difflib  # which a daemon without mistakes in its files does not need

    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else otherwise or f"known: {', '.join(names)}"


def untrusted(error: ssl.SSLCertVerificationError, name_its_ca: str) -> tuple[str, str]:
    """Why a server's certificate is not trusted, and what to do: if nothing else, `name_its_ca`."""
    return error.verify_message.rstrip("."), _UNTRUSTED.get(error.verify_code, name_its_ca)


def why(error: OSError) -> str:
    """The system's text for an error, as part of a sentence: `no such file or directory`."""
    return (error.strerror or str(error)).lower()
