"""Checkpoints of long fits: what they belong to, the files, and who writes and reads them."""

from gpukpca.checkpoint.checkpoint import Checkpoint
from gpukpca.checkpoint.folder import check_folder, has_checkpoint

__all__ = ["Checkpoint", "check_folder", "has_checkpoint"]
