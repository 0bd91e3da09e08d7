"""Requests as strict models, the short form, openapi.json."""
