"""What is made of a DSN."""

from psycopg.conninfo import conninfo_to_dict

from runfold.adapters.postgres.database import check_dsn


def test_whatever_encoding_is_given_text_goes_as_utf8() -> None:
    """One character that a narrower encoding lacks would stop the commits of a whole partition."""
    dsn = check_dsn("postgresql://u@h/d?client_encoding=LATIN1&application_name=mine")
    made = conninfo_to_dict(dsn)
    assert (made["client_encoding"], made["application_name"]) == ("utf8", "mine")
