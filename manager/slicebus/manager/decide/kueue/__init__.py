"""Beside a Kueue: `beside_kueue` dispatches what Kueue admits, and answers its AdmissionCheck."""
