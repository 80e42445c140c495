# SPDX-License-Identifier: Apache-2.0
"""Runs in the virtual machine, as a unit: cron, systemd's timers, at and Slurm start pipelines.

Each is tried with jobs that the daemon sees from their start, with such that were there before it,
and with such that live across its restart. Each claim prints a line, and one with what a run said;
the last line is the result.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from claims import try_all
from recorded import (
    PATIENCE,
    Recorded,
    Run,
    alive,
    expect,
    held,
    make_stages,
    pipeline,
    said,
    wait_until,
)

URL = "http://127.0.0.1:9905"
JOBS = Path("/opt/jobs")
CRON_TAB = Path("/etc/cron.d/vm")
RUN_PARTS = Path("/etc/cron.vm")
USER = "ann"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"

RECORDED = Recorded(URL)

COUNTING = (
    *(
        "cron-line",
        "cron-script",
        "cron-mail",
        "cron-parts",
        "cron-ann",
        "cron-bash",
        "cron-python",
    ),
    *("cron-named",),
    *("timer-unit", "timer-template", "timer-named", "timer-run", "timer-user"),
    *("at-root", "at-ann", "at-named", "at-batch"),
    *("slurm-batch", "slurm-array", "slurm-step", "slurm-inner", "slurm-wrap", "slurm-direct"),
    *("slurm-cleared", "slurm-named", "slurm-fails", "slurm-nameless"),
)
#: First stages of jobs that are there before the daemon, and of those that live across its restart.
SCHEDULERS = ("cron", "timer", "at", "slurm")
BEFORE = tuple(f"{name}-before" for name in SCHEDULERS)
#: The history may use a hundredth of a CPU: of an emulated one, a run every few seconds. Of runs
#: that end together it keeps the longest, as many as that lets it.
HISTORY_SECONDS = 6
ACROSS = tuple(f"{name}-across" for name in SCHEDULERS)

#: What the path of a cgroup was inside a job.
CGROUPS = Path("/run/cgroups")


def call(*words: str, user: str = "", text: str = "", **environment: str) -> str:
    """What a command prints; it has no variable of ours but those."""
    command = ["runuser", "-u", user, "--", *words] if user else [*words]
    usual = {"PATH": f"{JOBS}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LANG": "C"}
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        env=usual | environment,
        cwd="/",
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    return done.stdout.strip()


def script(name: str, text: str, shell: str = "/bin/sh") -> str:
    path = JOBS / name
    path.write_text(f"#!{shell}\n{text}\n")
    path.chmod(0o755)
    return str(path)


def cron_tab(*lines: str) -> None:
    """Jobs for every minute from the next one on."""
    head = f"PATH={JOBS}:/usr/bin:/bin\n"
    part = CRON_TAB.with_name("vm~")  # cron passes such names over
    part.write_text(head + "".join(f"* * * * * {line}\n" for line in lines))
    part.rename(CRON_TAB)


def service(name: str, command: str, *lines: str, timer: str = "") -> None:
    """A oneshot unit, with a timer that starts it a second after it was started itself."""
    units = Path("/etc/systemd/system")
    settings = "\n".join(lines)
    (units / f"{name}.service").write_text(
        f"[Service]\nType=oneshot\nEnvironment=PATH={JOBS}:/usr/bin:/bin\n{settings}\n"
        f"ExecStart=/bin/sh -c '{command}'\n"
    )
    (units / f"{name}.timer").write_text("[Timer]\nOnActiveSec=1\nAccuracySec=1us\n")
    call("systemctl", "daemon-reload")
    call("systemctl", "start", f"{timer or name}.timer")


def sbatch(*options: str, text: str, user: str = "", **environment: str) -> str:
    """The number of the job that runs this script."""
    return call(
        *("sbatch", "--parsable", "--output=/dev/null", *options),
        text=f"#!/bin/bash\n{text}\n",
        user=user,
        **environment,
    )


# -- jobs that are older than the daemon, or than its latest start


#: First stages of such jobs that were seen to run.
STARTED: set[str] = set()


def start_everywhere(names: tuple[str, ...], gates: Mapping[str, int]) -> None:
    """A job by each scheduler, which lives until the process ends that `gates` has for it."""
    cron, timer, at, slurm = names
    cron_tab(f"root [ -e /run/{cron} ] || {held(cron, gates[cron])}")
    service(timer, held(timer, gates[timer]))
    call("at", "now", text=held(at, gates[at]))
    try:
        sbatch("--job-name=held", text=held(slurm, gates[slurm]))
    except AssertionError as error:  # the others are tried all the same
        print(f"guest: {error}", flush=True)
        names = names[:-1]
    for name in names:
        wait_until(lambda name=name: alive(name), f"{name} to run")  # type: ignore[misc]
        STARTED.add(name)
    Path(f"/run/{cron}").touch()
    CRON_TAB.unlink()


def wait_until_live() -> None:
    wanted = {f"{name}|sort|tail" for name in STARTED}
    wait_until(lambda: wanted <= RECORDED.live(), f"live: {wanted}")


def started(first: str) -> Run:
    assert first in STARTED, "its job has not begun"
    return RECORDED.only(first)


def the_service_is_up() -> None:
    wait_until(
        lambda: call("systemctl", "show", "--value", "-p", "ActiveState", "pipelined") == "active",
        "the service",
    )


def slurm_is_up() -> None:
    print(f"seen: {call('sinfo', '--version')}", flush=True)
    command = ["sinfo", "--noheader", "--format=%T"]

    def idle() -> bool:
        return "idle" in subprocess.run(command, capture_output=True, text=True).stdout

    wait_until(idle, "an idle node")


def jobs_start_before_and_live_across_the_daemon_s_start() -> None:
    gates = {name: subprocess.Popen(["sleep", "infinity"]) for name in (*ACROSS, *BEFORE)}
    pids = {name: gate.pid for name, gate in gates.items()}
    try:
        start_everywhere(ACROSS, pids)
        wait_until_live()
        call("systemctl", "stop", "pipelined")
        start_everywhere(BEFORE, pids)
        call("systemctl", "start", "pipelined")
        wait_until_live()
    finally:
        for gate in gates.values():
            gate.terminate()
            gate.wait()
            time.sleep(HISTORY_SECONDS)


def a_job_of_cron_that_is_older_than_the_daemon_is_cron_s() -> None:
    expect(started("cron-before"), "cron.service", partial=True)


def a_job_of_a_timer_that_is_older_than_the_daemon_is_its_unit_s() -> None:
    """Variables are read when a program starts: what is older has no invocation."""
    expect(started("timer-before"), "timer-before.service", partial=True)


def a_job_of_at_that_is_older_than_the_daemon_is_atd_s() -> None:
    expect(started("at-before"), "atd.service", partial=True)


def a_job_of_slurm_that_is_older_than_the_daemon_is_that_of_slurm_s_steps() -> None:
    expect(started("slurm-before"), "node_slurmstepd.scope", partial=True)


def jobs_that_lived_across_a_restart_keep_their_units() -> None:
    units = ("cron-across.cron", "timer-across.service", "atd.service", "held.job")
    for name, unit in zip(ACROSS, units, strict=True):
        run = started(name)
        assert run["partial"] and run["unwatched_seconds"] > 0
        assert run["unit"] == unit, (run["unit"], unit)


# -- cron


def cron_starts_jobs() -> None:
    script("backup.sh", pipeline("cron-script"))
    script("load.py", f"import os\nos.system('{pipeline('cron-python')}')", "/usr/bin/python3")
    RUN_PARTS.mkdir()
    (RUN_PARTS / "report").symlink_to(script("report", pipeline("cron-parts")))
    once = "[ -e /run/once ] ||"
    cron_tab(
        f"root {once} {pipeline('cron-line')} > /dev/null",
        f"root {once} {{ cd / && nice -n 5 {JOBS}/backup.sh -v secret > /dev/null; }}",
        f"root {once} {pipeline('cron-mail')}",
        f"root {once} /usr/bin/python3 {JOBS}/load.py",
        f"root {once} {{ cd / && run-parts --report {RUN_PARTS}; }}",
        f"{USER} {once} {pipeline('cron-ann')} > /dev/null",
    )
    call(
        *("crontab", "-u", USER, "-"),
        text=f"PATH={JOBS}:/usr/bin:/bin\nSHELL=/bin/bash\nTRACEPARENT={PARENT}\n"
        f"* * * * * {once} {pipeline('cron-bash')} > /dev/null\n"
        f"PIPELINED_JOB=nightly-2026-11-25\n* * * * * {once} {pipeline('cron-named')}\n",
    )
    try:
        for name in ("cron-line", "cron-script", "cron-mail", "cron-parts", "cron-ann"):
            RECORDED.wait_for(f"{name}|sort|tail")
        for name in ("cron-bash", "cron-named", "cron-python"):
            RECORDED.wait_for(f"{name}|sort|tail")
    finally:
        Path("/run/once").touch()
        CRON_TAB.unlink()
        call("crontab", "-u", USER, "-r")


def first_of_cron(name: str) -> Run:
    """The first of the runs of a job, which cron may have started in two minutes."""
    run = RECORDED.wait_for(f"{name}|sort|tail")[0]
    print(f"seen: {said(run)}", flush=True)
    return run


def a_line_of_a_crontab_is_the_job_of_its_first_program() -> None:
    expect(first_of_cron("cron-line"), "cron-line.cron")
    expect(first_of_cron("cron-mail"), "cron-mail.cron")


def a_script_that_cron_starts_is_a_job() -> None:
    expect(first_of_cron("cron-script"), "backup.sh.cron")
    expect(first_of_cron("cron-python"), "load.py.cron")


def a_script_that_run_parts_starts_is_a_job() -> None:
    expect(first_of_cron("cron-parts"), "report.cron")


def a_job_of_a_user_is_that_user_s() -> None:
    expect(first_of_cron("cron-ann"), "cron-ann.cron", user=USER)


def variables_of_a_crontab_name_job_and_trace() -> None:
    expect(first_of_cron("cron-bash"), "cron-bash.cron", user=USER, trace=TRACE)
    expect(first_of_cron("cron-named"), "nightly.job", user=USER, trace=TRACE)


# -- systemd


def invocation(unit: str) -> str:
    """That of the unit's last start, by the journal."""
    words = ("-u", f"{unit}.service", "-o", "json", "--no-pager", "_PID=1")
    entries = [json.loads(line) for line in call("journalctl", *words).splitlines()]
    found = [entry["INVOCATION_ID"] for entry in entries if "INVOCATION_ID" in entry]
    return str(found[-1])


def a_unit_that_a_timer_starts_is_its_job_and_has_an_invocation() -> None:
    service("timer-unit", f"echo begun; {pipeline('timer-unit')}")
    run = RECORDED.only("timer-unit")
    expect(run, "timer-unit.service", invocation=invocation("timer-unit"))
    started = run["identity"]["invocation_id"]
    lines = call("journalctl", "-o", "cat", f"_SYSTEMD_INVOCATION_ID={started}")
    assert lines.splitlines() == ["begun", "9999"], lines


def an_instance_of_a_template_is_the_template_s() -> None:
    service("backup@", pipeline("timer-template"), timer="backup@sda")
    run = RECORDED.only("timer-template")
    expect(run, "backup@.service", invocation=invocation("backup@sda"))


def a_unit_s_variables_name_job_and_trace() -> None:
    service(
        "named",
        pipeline("timer-named"),
        f"Environment=PIPELINED_JOB=nightly TRACEPARENT={PARENT}",
        f"User={USER}",
    )
    run = RECORDED.only("timer-named")
    expect(run, "nightly.job", user=USER, trace=TRACE, invocation=invocation("named"))


def what_systemd_run_starts_has_no_number() -> None:
    call(
        "systemd-run",
        "--on-active=1",
        f"--setenv=PATH={JOBS}:/usr/bin:/bin",
        "sh",
        "-c",
        pipeline("timer-run"),
    )
    run = RECORDED.only("timer-run")
    expect(run, "run.service", invocation=run["identity"]["invocation_id"])
    assert re.fullmatch("[0-9a-f]{32}", run["identity"]["invocation_id"])


def a_timer_of_a_user_s_manager_is_the_unit_of_the_user() -> None:
    call("loginctl", "enable-linger", USER)
    units = Path(f"/home/{USER}/.config/systemd/user")
    text = f"[Service]\nType=oneshot\nEnvironment=PATH={JOBS}:/usr/bin:/bin\n"
    (units).mkdir(parents=True)
    job = pipeline("timer-user")
    (units / "mine.service").write_text(f"{text}ExecStart=/bin/sh -c '{job}'\n")
    (units / "mine.timer").write_text("[Timer]\nOnActiveSec=1\nAccuracySec=1us\n")
    call("chown", "-R", USER, f"/home/{USER}")
    bus = f"/run/user/{call('id', '-u', USER)}"
    wait_until(lambda: Path(f"{bus}/bus").exists(), "the user's manager")
    call("systemctl", "--user", "start", "mine.timer", user=USER, XDG_RUNTIME_DIR=bus)
    run = RECORDED.only("timer-user")
    expect(run, "mine.service", user=USER, invocation=run["identity"]["invocation_id"])
    assert re.fullmatch("[0-9a-f]{32}", run["identity"]["invocation_id"])


# -- at


def a_job_of_at_is_atd_s() -> None:
    call("at", "now", text=pipeline("at-root"))
    expect(RECORDED.only("at-root"), "atd.service")
    call("at", "now", text=pipeline("at-ann"), user=USER)
    expect(RECORDED.only("at-ann"), "atd.service", user=USER)


def a_job_of_batch_is_atd_s() -> None:
    call("batch", text=pipeline("at-batch"))
    expect(RECORDED.only("at-batch"), "atd.service")


def at_hands_on_the_environment_of_who_called_it() -> None:
    """Its job, its trace, and its start of a unit, in which the job is no more."""
    given = {"PIPELINED_JOB": "nightly", "TRACEPARENT": PARENT, "INVOCATION_ID": "ab" * 16}
    call("at", "now", text=pipeline("at-named"), **given)
    expect(RECORDED.only("at-named"), "nightly.job", trace=TRACE, invocation="ab" * 16)


# -- Slurm


def a_batch_job_of_slurm_has_its_name_and_number() -> None:
    CGROUPS.touch()
    CGROUPS.chmod(0o666)
    number = sbatch(
        "--job-name=nightly-2026-11-25",
        text=f"cat /proc/self/cgroup > {CGROUPS}; {pipeline('slurm-batch')}",
        user=USER,
    )
    run = RECORDED.only("slurm-batch")
    expect(run, "nightly.job", user=USER, variables={"SLURM_JOB_ID": number})
    print(f"seen: the cgroup of a batch job is {CGROUPS.read_text().strip()}", flush=True)


def tasks_of_an_array_have_its_number_and_theirs() -> None:
    number = sbatch("--job-name=array", "--array=1-3", text=pipeline("slurm-array"))
    runs = RECORDED.wait_for("slurm-array|sort|tail", 3)
    for run in runs:
        print(f"seen: {said(run)}", flush=True)
    given = [run["identity"]["variables"] for run in runs]
    assert {run["unit"] for run in runs} == {"array.job"}
    assert {one["SLURM_ARRAY_JOB_ID"] for one in given} == {number}
    assert sorted(one["SLURM_ARRAY_TASK_ID"] for one in given) == ["1", "2", "3"]
    assert len({one["SLURM_JOB_ID"] for one in given}) == 3


def a_step_of_a_job_is_of_the_job() -> None:
    step = script("step.sh", f"cat /proc/self/cgroup > {CGROUPS}; {pipeline('slurm-step')}")
    number = sbatch("--job-name=steps", text=f"srun {step} > /dev/null")
    expect(RECORDED.only("slurm-step"), "steps.job", variables={"SLURM_JOB_ID": number})
    print(f"seen: the cgroup of a step is {CGROUPS.read_text().strip()}", flush=True)


def srun_in_a_pipeline_is_a_stage_without_what_it_starts() -> None:
    number = sbatch("--job-name=piped", text=pipeline("srun slurm-inner"))
    (run,) = RECORDED.wait_for("srun|sort|tail")
    print(f"seen: {said(run)}", flush=True)
    expect(run, "piped.job", variables={"SLURM_JOB_ID": number})


def a_wrapped_command_is_called_wrap() -> None:
    number = call("sbatch", "--parsable", "--output=/dev/null", "--wrap", pipeline("slurm-wrap"))
    expect(RECORDED.only("slurm-wrap"), "wrap.job", variables={"SLURM_JOB_ID": number})


def srun_alone_makes_a_job() -> None:
    call("srun", "--job-name=adhoc", "sh", "-c", pipeline("slurm-direct"))
    run = RECORDED.only("slurm-direct")
    expect(
        run, "adhoc.job", variables={"SLURM_JOB_ID": run["identity"]["variables"]["SLURM_JOB_ID"]}
    )


def without_a_name_the_job_is_called_as_its_program() -> None:
    call("srun", "sh", "-c", pipeline("slurm-nameless"))
    run = RECORDED.only("slurm-nameless")
    expect(run, "sh.job", variables={"SLURM_JOB_ID": run["identity"]["variables"]["SLURM_JOB_ID"]})


def what_a_job_starts_with_an_empty_environment_is_still_its() -> None:
    text = f"env -i PATH={JOBS}:/usr/bin sh -c '{pipeline('slurm-cleared')}; true'"
    sbatch("--job-name=cleared", text=text)
    expect(RECORDED.only("slurm-cleared"), "cleared.job")


def sbatch_hands_on_the_environment_of_who_called_it() -> None:
    """Its job comes before Slurm's; its start of a unit is not one of this host's slurmd."""
    given = {"PIPELINED_JOB": "mine", "TRACEPARENT": PARENT, "INVOCATION_ID": "ab" * 16}
    number = sbatch("--job-name=other", text=pipeline("slurm-named"), **given)
    variables = {"SLURM_JOB_ID": number}
    run = RECORDED.only("slurm-named")
    expect(run, "mine.job", variables=variables, trace=TRACE, invocation="ab" * 16)


def a_stage_that_fails_in_a_job_is_a_failure() -> None:
    number = sbatch(
        "--job-name=fails", text="slurm-fails 20000 | sort | sh -c 'cat > /dev/null; exit 3'"
    )
    (run,) = RECORDED.wait_for("slurm-fails|sort|sh")
    print(f"seen: {said(run)} {run['failure']}", flush=True)
    expect(run, "fails.job", variables={"SLURM_JOB_ID": number}, outcome="failed")
    assert run["failure"] == "sh: exit 3"


def a_job_that_scancel_ends_has_failed() -> None:
    """SIGTERM goes to the script alone, whose shell waits; SIGKILL follows for all of it."""
    make_stages(JOBS, holding=["slurm-cancelled"])
    number = sbatch("--job-name=cancelled", text=held("slurm-cancelled", os.getpid()))
    wait_until(lambda: alive("slurm-cancelled"), "the job")
    time.sleep(2)  # its stages have to be found: they wait for good
    call("scancel", number)
    run = RECORDED.only("slurm-cancelled")
    assert run["failure"] == "slurm-cancelled: SIGKILL", run["failure"]
    variables = {"SLURM_JOB_ID": number}
    expect(run, "cancelled.job", variables=variables, outcome="failed")


CLAIMS = (
    the_service_is_up,
    slurm_is_up,
    cron_starts_jobs,
    a_line_of_a_crontab_is_the_job_of_its_first_program,
    a_script_that_cron_starts_is_a_job,
    a_script_that_run_parts_starts_is_a_job,
    a_job_of_a_user_is_that_user_s,
    variables_of_a_crontab_name_job_and_trace,
    a_unit_that_a_timer_starts_is_its_job_and_has_an_invocation,
    an_instance_of_a_template_is_the_template_s,
    a_unit_s_variables_name_job_and_trace,
    what_systemd_run_starts_has_no_number,
    a_timer_of_a_user_s_manager_is_the_unit_of_the_user,
    a_job_of_at_is_atd_s,
    a_job_of_batch_is_atd_s,
    at_hands_on_the_environment_of_who_called_it,
    a_batch_job_of_slurm_has_its_name_and_number,
    tasks_of_an_array_have_its_number_and_theirs,
    a_step_of_a_job_is_of_the_job,
    srun_in_a_pipeline_is_a_stage_without_what_it_starts,
    a_wrapped_command_is_called_wrap,
    srun_alone_makes_a_job,
    without_a_name_the_job_is_called_as_its_program,
    what_a_job_starts_with_an_empty_environment_is_still_its,
    sbatch_hands_on_the_environment_of_who_called_it,
    a_stage_that_fails_in_a_job_is_a_failure,
    a_job_that_scancel_ends_has_failed,
    jobs_start_before_and_live_across_the_daemon_s_start,
    a_job_of_cron_that_is_older_than_the_daemon_is_cron_s,
    a_job_of_a_timer_that_is_older_than_the_daemon_is_its_unit_s,
    a_job_of_at_that_is_older_than_the_daemon_is_atd_s,
    a_job_of_slurm_that_is_older_than_the_daemon_is_that_of_slurm_s_steps,
    jobs_that_lived_across_a_restart_keep_their_units,
)


def main() -> int:
    call("useradd", "--create-home", "--shell", "/bin/bash", USER)
    make_stages(JOBS, COUNTING, (*BEFORE, *ACROSS))
    failures = try_all(CLAIMS, "guest")
    if failures:
        units = [
            word for unit in ("pipelined", "slurmd", "slurmctld", "munge") for word in ("-u", unit)
        ]
        subprocess.run(["journalctl", *units, "--no-pager", "-n", "100"], check=False)
        for log in Path("/var/log/slurm").glob("*.log"):
            print(f"{log}\n{log.read_text()[-3000:]}", flush=True)
    print(f"guest: result failures={failures}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
