"""Checkpoints of long fits: what they belong to, the files, and who writes and reads them."""

from gpukpca.decomposition.checkpoint.checkpoint import Checkpoint, checkpoint_for
from gpukpca.decomposition.checkpoint.folder import check_folder, has_generations

__all__ = ["Checkpoint", "check_folder", "checkpoint_for", "has_generations"]
