"""Orders of the manager: `triage` decides what becomes of one, `orders` has the steps of each, `policy` what they may
make here."""
