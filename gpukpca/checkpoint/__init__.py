"""Checkpoints of long fits: the fingerprint of a fit, the files, and the checkpointer that writes and reads them."""

from gpukpca.checkpoint.checkpoint import Checkpoint
from gpukpca.checkpoint.folder import check_folder, has_checkpoint

__all__ = ["Checkpoint", "check_folder", "has_checkpoint"]
