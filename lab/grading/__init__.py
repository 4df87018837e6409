"""The grader: gates, cases, verdicts, and the audit that measures how often they are wrong.

    from lab.grading import InProcess, grade
    record = grade(InProcess(my_attention), policy="bf16")
    print(record.verdict, record.score, record.fault_class)

Importing this package imports no jax.
"""

from lab.grading.engine import grade
from lab.grading.executor import Answer, Call, Executor, InProcess

__all__ = ["Answer", "Call", "Executor", "InProcess", "grade"]
