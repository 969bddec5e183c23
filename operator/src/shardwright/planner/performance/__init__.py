"""How fast one replica serves: TTFT, TPOT and throughput of an arrangement at a load, before it runs."""
