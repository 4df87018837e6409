"""Read libtpu's final VLIW schedule (``*-final_bundles.txt``)."""


class UnrecognisedDump(Exception):  # noqa: N818 - it names the finding, as UserError does not
    """A dump is not in the known format; the message says what was expected and what was found."""
