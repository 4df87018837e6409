"""Is an answer right? Bounds from the truth, precision tiers, and relations without a tolerance.

`numeric` compares one answer with the truth, within the `budgets` of a `tier`; `relations` compares
answers with one another, by `rows`; `null_answers` asks whether a case could fail at all;
`calibration` holds the thresholds, `intermediates` the float64 quantities all of them share.
"""
