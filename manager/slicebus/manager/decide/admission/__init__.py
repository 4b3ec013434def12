"""The builtin admission: `builtin` reconciles a job's chain, `admission_writes` writes what a cycle decided."""
