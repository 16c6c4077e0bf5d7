# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Histograms that can be added, so that quantiles over many recordings need only those of each.

A bucket is a whole number below 128, else one of 64 equal parts of an octave (from a power of two
to the next). A quantile is the middle of its bucket: it is wrong by 1/128 at most, or 0.8 %.
"""

from __future__ import annotations

# The greatest error of a quantile, as a part of it.
ERROR = 1 / 128

# `klogger` begins the names, for the reason that `prelude` gives.
SQL = """
CREATE MACRO klogger.klogger_shift(x) AS
  least(greatest(floor(log2(greatest(x, 1)))::BIGINT - 6, 0), 56);
-- floor(log2()) of a number right below a power of two may be too great by one.
CREATE MACRO klogger.klogger_bucket(x) AS CASE
  WHEN x < 128 THEN x
  WHEN x < (1::BIGINT << (klogger.klogger_shift(x) + 6))
  THEN (klogger.klogger_shift(x) - 1) * 64 + (x >> (klogger.klogger_shift(x) - 1))
  ELSE klogger.klogger_shift(x) * 64 + (x >> klogger.klogger_shift(x)) END;
CREATE MACRO klogger.bucket(x) AS CASE
  WHEN x < 0 THEN -klogger.klogger_bucket(-greatest(x::BIGINT, -9223372036854775807))
  ELSE klogger.klogger_bucket(x::BIGINT) END;
CREATE MACRO klogger.klogger_middle(b) AS CASE
  WHEN b < 128 THEN b
  ELSE ((b - (b // 64 - 1) * 64) << (b // 64 - 1)) + ((1::BIGINT << (b // 64 - 1)) // 2) END;
CREATE MACRO klogger.middle(b) AS sign(b)::BIGINT * klogger.klogger_middle(abs(b)::BIGINT);
-- An aggregate: how many of the values are in each bucket.
CREATE MACRO klogger.histogram_of(x) AS histogram(klogger.bucket(x));
-- The sum of a list of histograms: klogger.merged(list(h)).
CREATE MACRO klogger.merged(hs) AS (
  SELECT map_from_entries(list({'key': "klogger k", 'value': "klogger n"} ORDER BY "klogger k"))
  FROM (
    SELECT "klogger e".key AS "klogger k", sum("klogger e".value)::BIGINT AS "klogger n"
    FROM (SELECT unnest(flatten(list_transform(hs, lambda "klogger h": map_entries("klogger h"))))
            AS "klogger e")
    GROUP BY 1));
-- quantile_disc(x, q) of what histogram_of(x) has counted.
CREATE MACRO klogger.quantile_of(h, q) AS (
  SELECT klogger.middle(min("klogger k") FILTER ("klogger c" >= q * "klogger t"))
  FROM (
    SELECT "klogger e".key AS "klogger k", sum("klogger e".value) OVER () AS "klogger t",
           sum("klogger e".value) OVER (ORDER BY "klogger e".key) AS "klogger c"
    FROM (SELECT unnest(map_entries(h)) AS "klogger e")));
"""
