"""Compiles a cell for a TPU with no TPU attached: what binds it, how long it takes.

`compile` runs the compiler and `proof` shows that the program is right; `analysis` reads what they
leave by `hlo` (XLA's ops) and `schedule` (a kernel's cycles); `estimate` makes a time of it, held
against the floor of `roofline`; `record` is what is kept. `chips` has the targets of conf/target.
"""
