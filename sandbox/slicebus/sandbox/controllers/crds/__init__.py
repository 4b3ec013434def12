"""CustomResourceDefinitions for clusters without KubeRay."""
