-- SPDX-License-Identifier: GPL-2.0-only
-- title: Connections that waited
-- question: Which connections of TCP sent again, or had their acknowledgements delayed?
-- order: 10
-- events: TCP_TIMER, RETRANSMITTED
-- picture: bars x=segments y=connection
-- combine: sum
-- column source: the end that did it
-- column destination: the other end
-- column segments [count, bar]: segments that were sent again
-- column timeouts [count]: times that nothing had been acknowledged for too long
-- column delayed [count]: acknowledgements that were sent only when a timer said so
-- column probes [count]: of a window of zero, and of the last segment
-- column connection: both ends
-- note: A delayed acknowledgement makes nobody wait, unless the other end keeps back what it has to
--     send (Nagle's rule), or cannot send more before. 'klogger why' says who waited.
-- empty: no segment was sent again, and no acknowledgement was late, while the log was recorded

CREATE TEMP TABLE tcp_connection AS
SELECT source, destination, sum(segments)::BIGINT AS segments,
    count(*) FILTER (timer = 1) AS timeouts, count(*) FILTER (timer = 2) AS delayed,
    count(*) FILTER (timer IN (3, 5)) AS probes
FROM (
    SELECT endpoint(source) AS source, endpoint(destination) AS destination, 0 AS segments, timer
    FROM TCP_TIMER
    UNION ALL
    SELECT endpoint(source), endpoint(destination), segments, 0 FROM RETRANSMITTED
)
GROUP BY source, destination;

-- table
SELECT source, destination, segments, timeouts, delayed, probes FROM tcp_connection
ORDER BY segments DESC, timeouts + delayed + probes DESC, source, destination;

-- picture
SELECT source || ' to ' || destination AS connection, segments FROM tcp_connection
WHERE segments > 0 ORDER BY segments DESC, connection LIMIT 20;

-- finding
SELECT format('{} sent {} again to {}.', source,
    CASE WHEN segments = 1 THEN '1 segment' ELSE segments || ' segments' END, destination)
FROM tcp_connection WHERE segments > 0
QUALIFY row_number() OVER (ORDER BY segments DESC, source, destination) = 1;
