"""A decision written out for people: one document, of which text, JSON and page are views."""
