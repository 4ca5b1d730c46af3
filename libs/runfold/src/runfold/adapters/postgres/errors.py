"""What a caller cannot mend by trying again."""

from __future__ import annotations


class StoreMisconfigured(Exception):
    """The DSN, the schema or its tables are not what this code needs: a person has to act; the message says how."""
