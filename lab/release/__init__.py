"""The data release: built from records, verified by anyone, with no jax."""

# Version of the release's layout and columns: a reader that knows 1 may trust what it knows.
RELEASE_SCHEMA_VERSION = 1
# Semantic version of the data set; its history stands in templates/CHANGELOG.md.
RELEASE_VERSION = "0.1.0"
