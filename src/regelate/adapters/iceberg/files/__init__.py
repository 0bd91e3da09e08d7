"""Data files: outputs, layouts of foreign files, group views, the ledger, the store."""
