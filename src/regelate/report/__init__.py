"""Renders the JSON that operations answer, as small tables of text and as pictures."""
