"""Measurements that the documents quote. Run by hand; nothing here is a test."""
