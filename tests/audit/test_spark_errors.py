"""What people read when Spark fails: why, and not that something was called."""

from __future__ import annotations

from reconciler.audit.engines.spark_errors import cause_line

ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 12 in stage 0.0 failed 4 times, most "
    "recent failure: Lost task 12.3 in stage 0.0 (TID 31) (10.0.0.7 executor 2): ExecutorLostFailure (executor 2 "
    "exited caused by one of the running tasks) Reason: Command exited with code 137"
)


def test_a_lost_executor_is_told_and_not_the_call_that_failed() -> None:
    java = (
        f"An error occurred while calling o54.collectToPython.\n: {ABORTED}\nDriver stacktrace:\n\tat org.apache.X(Y)\n"
    )
    assert cause_line(RuntimeError(java)) == ABORTED


def test_the_root_cause_is_told_beside_the_first_line() -> None:
    java = f": {ABORTED}\n\tat a.B(C)\nCaused by: java.io.IOException: failed\n\tat a.B(C)\nCaused by: No space left\n"
    assert cause_line(RuntimeError(java)) == f"{ABORTED} ... Caused by: No space left"


def test_an_error_without_words_is_told_by_its_name() -> None:
    assert cause_line(ConnectionResetError()) == "ConnectionResetError"
