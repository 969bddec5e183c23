"""What the pictures of results share. Decides font and background."""

from collections.abc import Iterable


def document(width: int, height: int, parts: Iterable[str]) -> str:
    """Return the parts of a picture as one SVG."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    )
    return "\n".join((*head, *parts, "</svg>", ""))
