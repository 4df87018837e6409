"""Makes a release from raw records: intake, profiles, tables, evidence pages, one folder."""
