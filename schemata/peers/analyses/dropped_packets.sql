-- SPDX-License-Identifier: GPL-2.0-only
-- title: Packets that were dropped
-- question: Which packets of TCP and UDP did the kernel drop, and why?
-- order: 20
-- events: PACKET_DROPPED
-- picture: bars x=packets y=what
-- combine: sum
-- column reason: as the kernel calls it
-- column place: the function that dropped them
-- column destination: where they were going to
-- column packets [count, bar]: packets
-- column bytes [bytes]: in them, as they were then
-- column what: reason and destination
-- note: NOT_SPECIFIED is also said of packets that were no longer needed.
-- empty: no packet of TCP or UDP was dropped while the log was recorded

CREATE TEMP TABLE dropped_packet AS
SELECT replace(klogger.skb_drop_reason(reason), 'SKB_DROP_REASON_', '') AS reason,
    coalesce(regexp_replace(place_symbol, '\+.*', ''), '') AS place,
    endpoint(destination) AS destination, count(*) AS packets, sum(bytes)::BIGINT AS bytes
FROM PACKET_DROPPED GROUP BY ALL;

-- table
SELECT reason, place, destination, packets, bytes FROM dropped_packet
ORDER BY packets DESC, reason, place, destination;

-- picture
SELECT reason || ', ' || destination AS what, sum(packets)::BIGINT AS packets FROM dropped_packet
GROUP BY what ORDER BY packets DESC, what LIMIT 20;

-- finding
SELECT format('The kernel dropped {} to {}: {}.',
    CASE WHEN packets = 1 THEN '1 packet' ELSE packets || ' packets' END, destination, reason)
FROM dropped_packet
QUALIFY row_number() OVER (ORDER BY packets DESC, reason, place, destination) = 1;
