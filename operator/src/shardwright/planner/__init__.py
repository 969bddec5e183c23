"""Memory, legality, candidates, choice and explanation. Pure: values in, values out."""
