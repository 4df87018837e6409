"""Read libtpu's final VLIW schedule (``*-final_bundles.txt``)."""


class UnrecognisedDump(Exception):  # noqa: N818 - it names the finding, as UserError does not
    """A dump is not in the known format; the message says what was expected and what was found."""


DUMP_FLAGS = (
    "--xla_jf_dump_to={directory} --xla_jf_dump_llo_text=true"
    " --xla_jf_dump_llo_pass_label_regex=final_|packed-bundles-post-ra|pre-delay_hlo"
)
