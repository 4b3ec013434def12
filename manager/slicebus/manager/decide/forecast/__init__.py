"""Says what the next admission cycle would decide about jobs, sizes and quota that nobody has submitted."""
