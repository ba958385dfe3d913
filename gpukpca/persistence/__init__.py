"""Model files: data only, from a fixed table of classes, checked before anything is believed."""

from gpukpca.persistence.save_load import ESTIMATORS, load, load_with_notes, save

__all__ = ["ESTIMATORS", "load", "load_with_notes", "save"]
