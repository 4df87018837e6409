"""The shapes of the release's files: rows, schema, card, Croissant, canonical JSON, privacy."""
