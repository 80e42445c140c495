# SPDX-License-Identifier: Apache-2.0
"""Who may read the port of the service, by its configuration: the daemon may refuse to listen."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pipelined.config.state_directory import SERVICE_CONFIG
from pipelined.config.toml_file import load
from pipelined.doctor.check import Check
from pipelined.errors import UserError
from pipelined.http_port.exposure import is_exposed, protected_port

__all__ = ["has_flag", "is_closed", "port_check", "service_config"]

_NAME = "port of the service"
_FLAGS = "etc/default/pipelined"


def port_check(root: Path) -> Iterator[Check]:
    """Nothing without the file that packages install; unknown if the service's flags replace it."""
    file = service_config(root)
    if is_closed(file.parent):
        yield Check(_NAME, "unknown", f"this user may not look into {file.parent}")
        return
    if not os.path.exists(file):
        return
    if has_flag(root, r"(no-)?(web\.|config\b)"):
        detail = f"flags in /{_FLAGS} decide it, which are not read here"
        fix = "check the files that they name: pipelined serve --check-config"
        yield Check(_NAME, "unknown", detail, fix)
        return
    if _is_private(file):
        yield _unknown(file)
        return
    try:
        config = load(file)
        if config.web_config_file and _is_private(config.web_config_file):
            yield _unknown(config.web_config_file)
            return
        address, web_config = protected_port(config)
    except UserError as error:
        yield Check(_NAME, "missing", error.message, error.hint, required=True)
        return
    if not is_exposed(address):
        readers = "for this host only"
    elif web_config is not None and web_config.requires_authentication:
        readers = "for other hosts too, with a password or a certificate"
    else:
        readers = "for other hosts too, without a password, as web.allow-unauthenticated has it"
    yield Check(_NAME, "ok", f"{address}, {readers}")


def is_closed(directory: Path) -> bool:
    """Whether this user may not find out which files there are."""
    return os.path.isdir(directory) and not os.access(directory, os.X_OK)


def _is_private(file: Path) -> bool:
    return is_closed(file.parent) or (os.path.exists(file) and not os.access(file, os.R_OK))


def _unknown(private: Path) -> Check:
    return Check(_NAME, "unknown", f"this user may not read {private}")


def service_config(root: Path) -> Path:
    """The file that packages install."""
    return root / SERVICE_CONFIG.relative_to("/")


def has_flag(root: Path, names: str) -> bool:
    """Whether `OPTIONS` of the service have a flag whose name this expression matches."""
    try:
        text = (root / _FLAGS).read_text(errors="replace")
        return bool(re.search(rf"^\s*OPTIONS=.*--({names})", text, re.M))
    except OSError:
        return False
