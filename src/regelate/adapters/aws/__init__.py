"""Services of AWS that stand on their own: sessions of STS for tenants, results in a bucket."""

__all__ = ["results", "sessions"]
