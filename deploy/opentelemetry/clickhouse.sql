-- SPDX-License-Identifier: Apache-2.0
-- Questions to the runs and stages that hosts have sent to ClickHouse (docs/TRACES.md), on the table otel_traces as the
-- Collector's exporter creates it. Create the view first, which has each run once. Put your names, trace and day in place
-- of these.

-- runs
CREATE VIEW pipelined_runs AS
SELECT DISTINCT
    Timestamp AS start,
    Duration / 1e9 AS seconds,
    ResourceAttributes['host.name'] AS host,
    SpanAttributes['pipelined.unit'] AS unit,
    SpanAttributes['pipelined.pipeline'] AS pipeline,
    SpanAttributes['pipelined.nested'] = 'true' AS nested,
    SpanAttributes['pipelined.run.outcome'] AS outcome,
    SpanAttributes['error.type'] AS error,
    toFloat64OrZero(SpanAttributes['pipelined.run.not_overlapped_seconds']) AS not_overlapped_seconds,
    TraceId AS trace_id,
    SpanId AS span_id
FROM otel_traces
WHERE ServiceName = 'pipelined' AND SpanAttributes['pipelined.kind'] = 'run';

-- which jobs wasted most last night, everywhere?
SELECT unit, pipeline, count() AS runs, uniqExact(host) AS hosts,
    round(sum(not_overlapped_seconds)) AS not_overlapped_s, round(sum(seconds)) AS total_s
FROM pipelined_runs
WHERE start >= yesterday() + INTERVAL 20 HOUR AND start < today() + INTERVAL 8 HOUR AND NOT nested
GROUP BY unit, pipeline
ORDER BY not_overlapped_s DESC
LIMIT 20;

-- what would have helped them?
SELECT SpanAttributes['pipelined.unit'] AS unit, SpanAttributes['pipelined.pipeline'] AS pipeline,
    finding['pipelined.finding.id'] AS finding_id, uniqExact(SpanId) AS runs,
    any(finding['pipelined.finding.text']) AS for_example
FROM otel_traces
ARRAY JOIN Events.Name AS event, Events.Attributes AS finding
WHERE ServiceName = 'pipelined' AND event = 'finding' AND Timestamp >= yesterday() + INTERVAL 20 HOUR
GROUP BY unit, pipeline, finding_id
ORDER BY runs DESC
LIMIT 20;

-- which took longest last night, everywhere?
SELECT round(seconds, 1) AS took_s, start, host, unit, pipeline, outcome, trace_id
FROM pipelined_runs
WHERE start >= yesterday() + INTERVAL 20 HOUR AND start < today() + INTERVAL 8 HOUR AND NOT nested
ORDER BY seconds DESC
LIMIT 20;

-- which failed?
SELECT start, host, unit, pipeline, error, trace_id
FROM pipelined_runs
WHERE outcome = 'failed' AND start >= yesterday() + INTERVAL 20 HOUR
ORDER BY start DESC
LIMIT 100;

-- show me the pipes inside this job
-- (a job that set no TRACEPARENT has a trace per run: WHERE stage.TraceId IN (SELECT TraceId FROM otel_traces
-- WHERE SpanAttributes['pipelined.variable.SLURM_JOB_ID'] = '4711'))
SELECT run.pipeline AS pipeline, stage.SpanName AS command, round(stage.Duration / 1e9, 3) AS seconds,
    stage.SpanAttributes['pipelined.stage.cpu_seconds'] AS cpu_s,
    stage.SpanAttributes['pipelined.stage.state.pipe_empty_seconds'] AS pipe_empty_s,
    stage.SpanAttributes['pipelined.stage.state.pipe_full_seconds'] AS pipe_full_s,
    stage.SpanAttributes['pipelined.stage.state.disk_seconds'] AS disk_s,
    stage.SpanAttributes['pipelined.stage.pipe.out_bytes'] AS out_bytes,
    stage.SpanAttributes['error.type'] AS error
FROM otel_traces AS stage
JOIN pipelined_runs AS run ON run.span_id = stage.ParentSpanId AND run.trace_id = stage.TraceId
WHERE stage.TraceId = '4bf92f3577b34da6a3ce929d0e0e4736' AND stage.SpanAttributes['pipelined.kind'] = 'stage'
ORDER BY run.start, run.span_id, toUInt32(stage.SpanAttributes['pipelined.stage.position'])
LIMIT 1 BY stage.SpanId;

-- is it slower since Tuesday?
WITH toDate('2026-11-24') AS tuesday
SELECT unit, pipeline,
    countIf(start < tuesday) AS runs_before, round(quantileIf(0.5)(seconds, start < tuesday), 3) AS median_before_s,
    countIf(start >= tuesday) AS runs_since, round(quantileIf(0.5)(seconds, start >= tuesday), 3) AS median_since_s,
    round(median_since_s / median_before_s, 2) AS factor
FROM pipelined_runs
WHERE start >= tuesday - 14 AND outcome = 'succeeded'
GROUP BY unit, pipeline
HAVING runs_before >= 3 AND runs_since >= 3
ORDER BY factor DESC
LIMIT 20;

-- since which day?
SELECT toDate(start) AS day, count() AS runs, round(quantile(0.5)(seconds), 3) AS p50_s, round(quantile(0.95)(seconds), 3) AS p95_s
FROM pipelined_runs
WHERE unit = 'nightly.job' AND pipeline = 'seq|sort|tail' AND outcome = 'succeeded' AND start >= today() - 14
GROUP BY day
ORDER BY day;

-- which host is slowest?
-- (its median run times of jobs, compared with those of all hosts)
SELECT host, sum(runs) AS runs_of_host, round(exp(avg(log(median_s / fleet_s))), 2) AS times_the_fleet
FROM (
    SELECT host, runs, median_s, quantile(0.5)(median_s) OVER (PARTITION BY unit, pipeline) AS fleet_s,
        count() OVER (PARTITION BY unit, pipeline) AS hosts
    FROM (
        SELECT unit, pipeline, host, count() AS runs, quantile(0.5)(seconds) AS median_s
        FROM pipelined_runs
        WHERE start >= today() - 7 AND outcome = 'succeeded'
        GROUP BY unit, pipeline, host
    )
)
WHERE hosts > 1
GROUP BY host
ORDER BY times_the_fleet DESC
LIMIT 20;
