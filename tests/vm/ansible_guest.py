# SPDX-License-Identifier: Apache-2.0
"""Runs in the virtual machine, as a unit: what the Ansible role makes of a host without pipelined.

Each claim prints a line; the last line is the result. A claim goes on where the one before ended.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from claims import try_all

CONFIG = Path("/etc/pipelined/pipelined.toml")
WEB_CONFIG = Path("/etc/pipelined/web.yml")
SENDER_OPTIONS = Path("/etc/default/pipelined-export")
#: Of "secret", at the lowest cost there is.
HASH = "$2b$04$DaBjQgOeu0eDKLYt5q9oy.g8mssJa8xMvg1IlljMVILn5oE3UOE2i"
URL = "http://127.0.0.1:9905/healthz"
SENDER_URL = "http://127.0.0.1:9906/metrics"
#: How the sender gets the password, as docs/INSTALL.md says.
CLIENT = Path("/etc/pipelined/export-client.yml")
DROP_IN = Path("/etc/systemd/system/pipelined-export.service.d/client.conf")

DEB: dict[str, Any] = {"pipelined_deb": "/srv/pipelined.deb"}
REPOSITORY: dict[str, Any] = {
    "pipelined_repository": "file:/srv/apt",
    "pipelined_repository_key": "/srv/apt/pipelined-archive-keyring.gpg",
}
PRIVATE = {
    "pipelined_options": {"web.listen-address": ":9905", "max-stages": 7, "shells": ["bash", "sh"]},
    "pipelined_web_config": f"basic_auth_users:\n  alice: {HASH}\n",
    "pipelined_web_files": {"note": "/etc/hostname"},
    "pipelined_export_environment": {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "PIPELINED_HTTP_CONFIG_FILE": "/run/credentials/pipelined-export.service/daemon.yml",
        "OTEL_RESOURCE_ATTRIBUTES": 'a="b c"',
    },
}


def played(values: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
    """The role applied to this machine."""
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_subset": ["!all", "min", "distribution"],
        "roles": ["pipelined"],
    }
    Path("/play.json").write_text(json.dumps([play]))
    Path("/values.json").write_text(json.dumps(values))
    main = "from ansible.cli.playbook import main; main()"
    return subprocess.run(
        [sys.executable, "-c", main, "/play.json", "--extra-vars", "@/values.json", *options],
        env={
            **os.environ,
            "PYTHONPATH": "/srv/ansible",
            "ANSIBLE_ROLES_PATH": "/roles",
            "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
            "ANSIBLE_LOCALHOST_WARNING": "False",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
            "HOME": "/root",
            "LANG": "C.UTF-8",
        },
        capture_output=True,
        text=True,
    )


def changes(values: dict[str, Any], *options: str) -> int:
    """How many tasks have changed something; every one has to succeed."""
    done = played(values, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    recap = re.search(r"changed=(\d+) .*failed=0", done.stdout)
    assert recap, done.stdout
    return int(recap[1])


def show(name: str, unit: str = "pipelined") -> str:
    command = ["systemctl", "show", "--value", "-p", name, unit]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def version() -> str:
    command = ["dpkg-query", "-W", "-f", "${Version}", "pipelined"]
    return subprocess.run(command, capture_output=True, text=True).stdout


def mode(file: Path) -> tuple[int, str]:
    return stat.S_IMODE(file.stat().st_mode), file.group()


def check_mode_on_a_host_without_the_package_changes_nothing() -> None:
    assert changes({**DEB, **PRIVATE}, "--check") > 0
    assert changes({**REPOSITORY, **PRIVATE}, "--check") > 0
    assert not CONFIG.exists()
    assert not Path("/etc/apt/sources.list.d/pipelined.list").exists()
    assert version() == ""


def it_installs_the_file_and_starts_the_service() -> None:
    assert changes({**DEB, "pipelined_options": {"max-stages": 5}}) > 0
    assert show("ActiveState") == "active"
    assert show("UnitFileState") == "enabled"
    assert "max-stages = 5\n" in CONFIG.read_text()
    assert show("ActiveState", "pipelined-export") == "inactive"


def a_second_run_changes_nothing() -> None:
    before = show("MainPID")
    assert changes({**DEB, "pipelined_options": {"max-stages": 5}}) == 0
    assert show("MainPID") == before != "0"


def an_option_that_the_daemon_refuses_stays_out_of_the_file() -> None:
    before = CONFIG.read_text(), show("MainPID")
    for options, said in (
        ({"max-stage": 5}, "unknown key max-stage"),
        ({"web.listen-address": ":9905"}, "will not listen on 0.0.0.0:9905 without a password"),
    ):
        done = played({**DEB, "pipelined_options": options})
        assert done.returncode != 0
        assert said in done.stdout + done.stderr, done.stdout
    assert (CONFIG.read_text(), show("MainPID")) == before


def a_sender_that_has_no_password_for_the_port_is_refused() -> None:
    before = CONFIG.read_text(), show("MainPID")
    sender = {"pipelined_export_environment": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}}
    done = played({**DEB, **PRIVATE, **sender})
    assert done.returncode != 0
    assert "the sender needs a client's file" in done.stdout + done.stderr, done.stdout
    assert (CONFIG.read_text(), show("MainPID")) == before


def answer_without_a_password() -> int:
    """The status of the daemon's answer."""
    try:
        with urllib.request.urlopen(URL, timeout=300) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def sender_gets_answers() -> bool:
    """Whether the daemon answers the sender; not yet, if that does not listen itself."""
    try:
        with urllib.request.urlopen(SENDER_URL, timeout=300) as answer:
            return b'\npipelined_export_up{at="daemon"} 1.0\n' in answer.read()
    except OSError:
        return False


def wait_until(look: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + 300
    while not look():
        assert time.monotonic() < end, otherwise
        time.sleep(1)


def a_play_that_fails_at_the_sender_has_restarted_the_service() -> None:
    before = show("MainPID")
    assert answer_without_a_password() == 200
    DROP_IN.parent.mkdir()
    DROP_IN.write_text(f"[Service]\nLoadCredential=daemon.yml:{CLIENT}\n")  # which is not there
    done = played({**DEB, **PRIVATE})
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "Unable to start service pipelined-export" in said, said
    assert show("MainPID") not in (before, "0")
    assert answer_without_a_password() == 401

    CLIENT.write_text("basic_auth: {username: alice, password: secret}\n")
    CLIENT.chmod(0o600)
    # after five starts within five minutes there would be no other one, of neither
    for unit in ("pipelined", "pipelined-export"):
        subprocess.run(["systemctl", "reset-failed", unit], check=True)
    changes({**DEB, **PRIVATE})
    assert answer_without_a_password() == 401
    wait_until(lambda: show("ActiveState", "pipelined-export") == "active", "no sender runs")


def the_repository_upgrades_with_a_password_and_the_sender() -> None:
    before, installed = show("MainPID"), version()
    assert changes({**REPOSITORY, **PRIVATE}) > 0
    assert version() == f"{installed}.newer"
    assert show("MainPID") not in (before, "0")
    assert mode(WEB_CONFIG) == mode(WEB_CONFIG.with_name("note")) == (0o640, "pipelined-web")
    assert answer_without_a_password() == 401
    assert mode(SENDER_OPTIONS) == (0o600, "root")
    assert show("ActiveState", "pipelined-export") == "active"
    environ = Path(f"/proc/{show('MainPID', 'pipelined-export')}/environ").read_bytes()
    assert b'OTEL_RESOURCE_ATTRIBUTES=a="b c"\0' in environ
    wait_until(sender_gets_answers, "the daemon does not answer the sender")


def a_web_config_that_the_daemon_refuses_fails_the_play_and_the_daemon_goes_on() -> None:
    before, config = show("MainPID"), WEB_CONFIG.read_text()
    done = played({**REPOSITORY, **PRIVATE, "pipelined_web_config": "basic_auth_user: {}\n"})
    assert done.returncode != 0
    assert "unknown key basic_auth_user" in done.stdout + done.stderr, done.stdout
    assert (show("ActiveState"), show("MainPID")) == ("active", before)
    WEB_CONFIG.write_text(config)


def in_check_mode_it_then_finds_nothing_to_do() -> None:
    before = show("MainPID")
    assert changes({**REPOSITORY, **PRIVATE}, "--check") == 0
    assert show("MainPID") == before


def it_goes_back_to_the_version_that_is_named_and_turns_the_sender_off() -> None:
    older = version().removesuffix(".newer")
    values = {**REPOSITORY, "pipelined_version": older, "pipelined_options": {"recent-runs": 9}}
    assert changes(values) > 0
    assert version() == older
    assert show("ActiveState") == "active"
    assert show("ActiveState", "pipelined-export") == "inactive"
    assert show("UnitFileState", "pipelined-export") == "disabled"
    assert changes(values) == 0


CLAIMS = (
    check_mode_on_a_host_without_the_package_changes_nothing,
    it_installs_the_file_and_starts_the_service,
    a_second_run_changes_nothing,
    an_option_that_the_daemon_refuses_stays_out_of_the_file,
    a_sender_that_has_no_password_for_the_port_is_refused,
    a_play_that_fails_at_the_sender_has_restarted_the_service,
    the_repository_upgrades_with_a_password_and_the_sender,
    a_web_config_that_the_daemon_refuses_fails_the_play_and_the_daemon_goes_on,
    in_check_mode_it_then_finds_nothing_to_do,
    it_goes_back_to_the_version_that_is_named_and_turns_the_sender_off,
)


def main() -> int:
    failures = try_all(CLAIMS, "guest")
    if failures:
        subprocess.run(["journalctl", "-u", "pipelined", "-u", "pipelined-export", "--no-pager"])
    print(f"guest: result failures={failures}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
