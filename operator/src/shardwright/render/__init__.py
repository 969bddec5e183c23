"""A plan to the manifests a careful engineer would have written. Pure."""
