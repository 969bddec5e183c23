"""kopf wiring, work queue and reconcile. The only importer of kopf."""
