"""The explanation as one self-contained page: template, style and small script lie beside the code."""
