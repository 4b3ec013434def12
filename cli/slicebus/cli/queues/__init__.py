"""Lists ClusterQueues and LocalQueues, and stops and resumes them."""
