"""How often is the grader wrong? Trials on candidates whose verdict is known, and their summary.

`trials` grades, `summary` counts, `figures` draws; `usual_rules` are the tolerances others use, on
the same trials; `calibrate` measures the thresholds of `lab.grading.judge.calibration`.
"""
