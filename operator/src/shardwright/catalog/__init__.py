"""Facts about models, GPU products and engine versions, with their sources."""
