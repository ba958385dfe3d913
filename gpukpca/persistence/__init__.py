"""Model files: data only, from a fixed table of classes, with types, shapes and ranges checked before use."""

from gpukpca.persistence.save_load import load, load_with_notes, save

__all__ = ["load", "load_with_notes", "save"]
