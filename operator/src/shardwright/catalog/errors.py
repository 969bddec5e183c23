"""The one error of the catalogue: a fact that is missing, of the wrong kind, or impossible."""


class CatalogError(ValueError):
    """A row or a config.json that cannot be used; `field` says where, the message what to write instead."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
