"""Cases of `instructions.py`: kernels of single instructions, and what they must return."""
