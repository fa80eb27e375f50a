"""The contracts of protos/outrider/v1 as generated modules: never edited, written by `make protos`."""
