"""A fleet of replicas replayed against a trace, under any scaling policy. Pure."""
