# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus for tests: Debian's binary, with a configuration, on a port of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from server_process import ServerProcess, of_the_host


class Prometheus(ServerProcess):
    """Runs Prometheus in `directory` while the `with` block lasts.

    `config_text` is its configuration, `rules` are the files that it loads beside it; the paths
    in `config_text` are relative to `directory`. `flags` go to its command line as they are.
    `program` is its path; without it the host's runs.

    >>> with Prometheus(tmp_path, "scrape_configs: [...]") as prometheus:
    ...     prometheus.query("up")
    [{'metric': {'__name__': 'up', 'job': 'pipelined', …}, 'value': [1764590400.1, '1']}]
    """

    def __init__(
        self,
        directory: Path,
        config_text: str,
        rules: Iterable[Path] = (),
        flags: Iterable[str] = (),
        program: str | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        files = [str(file.resolve()) for file in rules]
        if files:
            config_text = f"rule_files: {json.dumps(files)}\n{config_text}"
        config = directory / "prometheus.yml"
        config.write_text(config_text)
        command = [
            program or of_the_host("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            *flags,
        ]
        super().__init__(directory, command, "--web.listen-address")
