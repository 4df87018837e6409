"""Which fault explains a wrong answer? Each model computes in float64 what one fault would give.

`classify` chooses among the models of `forward`, `masks` and `backward`, all built from `model`.
"""
