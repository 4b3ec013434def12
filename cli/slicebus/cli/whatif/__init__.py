"""Says what a recorded past would have been with other quota, clusters or policies."""
