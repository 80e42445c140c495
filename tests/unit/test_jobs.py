# SPDX-License-Identifier: Apache-2.0
"""How the variables and commands of jobs become the label `unit`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelined.model.jobs import unit_of_job
from pipelined.records.stage import JOB_COMMAND, JOB_PROGRAM, JOB_TEXT, JOB_VARIABLE, Job


def by_variable(value: str) -> str | None:
    return unit_of_job(Job(JOB_VARIABLE, value.encode()))


def by_command(command: str) -> str | None:
    return unit_of_job(Job(JOB_COMMAND, command.encode()))


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("nightly", "nightly.job"),
        ("etl.daily_v2", "etl.daily_v2.job"),
        ("etl-2026-11-23", "etl.job"),
        ("load-6c8d3a5e-1b2c-4d5e-8f90-0123456789ab", "load.job"),
        ("team/etl", "etl.job"),
        ("/srv/jobs/nightly.sh", "nightly.sh.job"),
        ("sort by size", "sort-by-size.job"),
        ('a"b\nc', "a-b-c.job"),
        ("größe", "größe.job"),
        ("2026", None),
        ("", None),
        ("/", None),
        ("--", None),
    ],
)
def test_a_variable_names_the_job_without_ids_and_paths(value: str, unit: str | None) -> None:
    assert by_variable(value) == unit


def test_a_value_that_is_cut_off_within_a_letter_loses_that_letter() -> None:
    assert unit_of_job(Job(JOB_VARIABLE, "größe".encode()[:-4])) == "gr.job"


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/usr/local/bin/backup.sh --all", "backup.sh"),
        ("zcat /var/log/a.gz | sort | uniq -c > /tmp/out", "zcat"),
        ("cd /srv/app && ./nightly.sh -p secret", "nightly.sh"),
        ("   cd / && run-parts --report /etc/cron.hourly", "run-parts"),
        ("test -x /usr/sbin/anacron || { cd / && run-parts /etc/cron.daily; }", "run-parts"),
        ("[ -x /usr/lib/php/clean ] && if [ ! -d /run/s ]; then /usr/lib/php/clean; fi", "clean"),
        ("command -v debian-sa1 > /dev/null && debian-sa1 1 1", "debian-sa1"),
        ("for f in *.gz; do zcat $f | sort; done", "zcat"),
        ("LC_ALL=C TMPDIR=/big sort -o out in", "sort"),
        ("env LC_ALL=C sort in", "sort"),
        ("nice -n 10 ionice -c3 rsync -a a b", "rsync"),
        ("nice rsync -a a b", "rsync"),
        ("flock -n /tmp/lock timeout -k 5 10m /opt/etl.sh", "etl.sh"),
        ("flock -w 5 /tmp/lock -c x", "x"),
        ("flock -n /tmp/l -c 'backup.sh --password=hunter2'", "backup.sh"),
        ("flock /tmp/l --command '/opt/backup.sh --token abc/s3cr3t'", "backup.sh"),
        ("flock /tmp/l -c 'mysqldump -phunter2 db | gzip > d.gz'", "mysqldump"),
        ("runuser -c '/opt/x --key secret' www-data", "x"),
        ("ionice -c 2 /opt/x", "x"),
        ("taskset -c 0 /opt/x", "x"),
        ("test -x /usr/sbin/foo || exit 0; /usr/sbin/foo", "foo"),
        ("cd /srv || exit; ./b.sh", "b.sh"),
        ("( flock -n 9 || exit 1; ./b.sh ) 9>/tmp/l", "b.sh"),
        ("readonly P=/x; ./b.sh", "b.sh"),
        ("sudo -u www-data /srv/x/report", "report"),
        ("sudo -u www-data -n /srv/x/report", "report"),
        ("sudo --user=u /srv/x/report", "report"),
        ("nice --adjustment=5 /opt/x", "x"),
        ("exec /opt/x", "x"),
        ("bash --exec /opt/x", "x"),
        ("bash --rc-- /opt/x", "x"),
        ("echo $ ; (/opt/x)", "x"),
        ("(sleep 5; /opt/x) | tee log", "x"),
        ("set -e; { cat a; cat b; } | sort", "cat"),
        ("> /tmp/log 2>&1 /opt/x", "x"),
        ("x=$(date +%F) && /opt/x $x", "x"),
        ("cd $(dirname $(readlink x)) && ./go", "go"),
        ('"$HOME/bin/my job.sh" 2>&1 | logger -t x', "my-job.sh"),
        ("bash /opt/jobs/etl.sh", "etl.sh"),
        ("bash -lc 'cd /x; make report'", "make"),
        ("bash -x /opt/jobs/etl.sh", "etl.sh"),
        ("/usr/bin/python3 /opt/etl/load.py --day 1", "load.py"),
        ("python3.11 -u -m etl.load", "etl.load"),
        ("perl -e 'print 1' | sort", "perl"),
        ("awk '{ print $1 }' /secret | sort", "awk"),
        ("/opt/a.sh\n/opt/b.sh", "a.sh"),
        ("bash -euo pipefail /opt/x", "x"),
        ("bash -o pipefail -c '/opt/x | wc -l'", "x"),
        ("bash -O extglob +x --rcfile /etc/rc /opt/x", "x"),
        ("python3 -W ignore -X dev /opt/x", "x"),
        ("python3 -Wc /opt/x secret", "x"),
        ("python3 -c 'import secret'", "python3"),
        ("python3 -um etl.load", "etl.load"),
        ("python3 -metl.load", "etl.load"),
        ("python3 - secret", "python3"),
        ("php -d api_key=secret -c /etc/php.ini -f /opt/x", "x"),
        ("php -dmemory=5c /opt/x secret", "x"),
        ("php --define key=secret /opt/x", "php"),
        ("perl -I /opt/lib -w /opt/x", "x"),
        ("perl -MDBI -MData::Dumper /opt/x secret", "x"),
        ("perl -mTime::HiRes -M DBI /opt/x secret", "x"),
        ("perl -lane print secret", "perl"),
        ("ruby -r json -C /srv /opt/x", "x"),
        ("node -r dotenv/config --max-old-space-size=9 /opt/x", "x"),
        ("node --require secret /opt/x", "node"),
        ("node -- /opt/x", "x"),
    ],
)
def test_cron_s_command_is_named_by_its_program(command: str, program: str) -> None:
    assert by_command(command) == f"{program}.cron"


@pytest.mark.parametrize(
    "before",
    [
        *("chronic -e", "chrt -T 5 -D 9 -P 1 10", "command -p", "env -C /x -u Y", "exec -a name"),
        *("flock -E 5 -w 5 /lock", "ionice -c 2 -n 7", "nice -n 5", "nohup", "runuser -g g -u u"),
        *("setsid -w", "stdbuf -e 0 -i 0 -o L", "sudo -u u -g g -p x", "systemd-cat -t x -p info"),
        *("taskset 0x3", "time -f x -o file", "timeout -k 5 -s KILL 9"),
        *(
            "flock --nonblock /lock",
            "flock --timeout 5 /lock",
            "flock --wait=5 /lock",
            "nice --adj 5",
        ),
        *("timeout -k5s 10m", "sudo -uroot", "nice -n5", "ionice -c2 -n7", "env -uX -CT"),
        *("sudo --user u --login --", "timeout --kill-after 5 --foreground 9", "ionice --class 2"),
    ],
)
def test_what_runs_a_command_is_not_the_job(before: str) -> None:
    assert by_command(f"{before} /opt/job.sh first second") == "job.sh.cron"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "",
            ":",
            "cd /srv",
            "cd /srv && ",
            "X=1",
            "bash",
            "sh -c",
            "'unclosed",
            "$(",
            "| | |",
            "nice",
        ),
        *("bash -s secret < /opt/x", "sh - secret"),
    ],
)
def test_a_command_without_a_program_has_no_name(command: str) -> None:
    assert by_command(command) is None


def test_of_a_command_that_is_cut_off_the_last_word_is_no_name() -> None:
    whole = JOB_TEXT - 1
    begin = "cd /" + "d" * 90 + " && "
    assert by_command((begin + "/opt/nightly-report-of-all.sh --x")[:whole]) is None
    assert by_command(("/opt/x --secret=" + "y" * 200)[:whole]) == "x.cron"
    assert by_command(("/opt/x '" + "y" * 200)[:whole]) == "x.cron"


@pytest.mark.parametrize(("name", "unit"), [("logrotate", "logrotate.cron"), ("sh", None)])
def test_a_program_that_a_scheduler_started_is_the_job_unless_it_is_a_shell(
    name: str, unit: str | None
) -> None:
    assert unit_of_job(Job(JOB_PROGRAM, name.encode())) == unit


sources = st.sampled_from([JOB_VARIABLE, JOB_COMMAND, JOB_PROGRAM])


@given(source=sources, text=st.binary(max_size=JOB_TEXT - 1).filter(lambda t: b"\0" not in t))
def test_whatever_the_text_a_label_has_no_path_and_no_blank(source: int, text: bytes) -> None:
    unit = unit_of_job(Job(source, text))
    assert unit is None or not set(unit) & set("/ \t\n\"'\\$")


@given(secret=st.text("abcdefgh", min_size=4), option=st.sampled_from(["-p", "--password=", "-u "]))
def test_arguments_are_never_a_label(secret: str, option: str) -> None:
    assert by_command(f"/opt/x {option}{secret} {secret} | mysql {option}{secret}") == "x.cron"
