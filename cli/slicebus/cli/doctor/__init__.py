"""The checks of an installation. Each says what to do where it fails."""
