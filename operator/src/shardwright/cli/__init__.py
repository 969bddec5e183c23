"""Commands: estimate, plan, crds, run."""
