"""Where the broker is, and how a user logs in: `address` has the settings, `login` reads the files that they name."""
