"""Why a job has the size that it has."""
