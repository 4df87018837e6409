"""The two ways in which the lab says no."""


class UserError(Exception):
    """A mistake in what was asked: the message says what was given, what is allowed, what to do.

    The entry point prints the message, without a traceback, and exits with code 2.
    """


class UnsupportedCell(Exception):  # noqa: N818 - a refusal is a result, not an error
    """A kernel or a compiler refuses this cell; the message is the reason that the record keeps."""
