"""The API server: server-side apply, watch store, events. The only importer of kubernetes."""
