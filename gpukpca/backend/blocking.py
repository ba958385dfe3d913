"""Sizes of tiles, panels, strips and thread thresholds: one table, each size with its unit and the reason for it.

Read a size as ``blocking.NAME`` where it is used. A size that differs on a GPU is a `PerDevice`. Sizes marked
"estimated" were never measured on a card. Shares of memory are in `limits`, the launch geometry of CUDA kernels is in
their files.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PerDevice:
    """A size on the host and on a GPU, where a launch costs as much as a small panel."""

    cpu: int
    gpu: int

    def on(self, gpu: bool) -> int:
        """Return the size for the device."""
        return self.gpu if gpu else self.cpu


# -- tiles of K ------------------------------------------------------------------------------------------------------

# Edge, rows. Measured on two cores: 512 to 768 alike, 1024 up to 15 % slower in float64. A tile stays in cache between
# its product, its exponentials and its two uses.
CPU_TILE_EDGE = 640
# Edges for large and small K. Tiles of less than about 32 million entries end before their three launches are queued;
# estimated.
GPU_TILE_EDGES = (8192, 4096)
# A small K has so many tiles along a side: half of a diagonal tile's work is wasted.
TILES_ALONG_A_SIDE = 8
# Smallest edges that a tight memory limit or many threads may lead to.
SMALLEST_TILE_EDGE = PerDevice(128, 512)
# Rows up to which K is one tile: starting threads costs more than they save.
ONE_TILE_UP_TO = 640
# Bytes of the rows of a tile once they are dense.
ROW_SLICE_BYTES = 64 * 2**20
# Edges of tiles that a product with new points streams at once.
STREAMED_EDGES = 8
# Rows of a panel of a stored square matrix.
SMALLEST_PRODUCT_PANEL = 256
# Bytes of a strip of a tile. On the host several passes use it in a core's cache; on a GPU it takes much longer than a
# launch and is much smaller than a tile.
STRIP_BYTES = 256 * 1024
GPU_STRIP_BYTES = 64 * 2**20

# -- rows of data ----------------------------------------------------------------------------------------------------

# Most rows of a panel on the host.
PANEL_ROWS = 4096
# Entries of a panel of rows: 8 MiB in float64 on the host, 64 MiB on a GPU, whose reductions take less than 2**31
# entries.
PANEL_ENTRIES = PerDevice(2**20, 2**23)
# Rows that are checked for NaN and infinity together.
CHECKED_ROWS = 8192
# Bytes of host rows that are copied to a device together: long compared with the call of a copy (0.3 ms at 50 GB/s).
# CuPy keeps two such pieces of pinned memory. Estimated.
TRANSFER_BYTES = 16 * 2**20
# Bytes of data with one hash, and of data that a thread hashes at once. An end of a panel on a cluster, of less than
# the first, goes to the client.
HASHED_BYTES, HASHED_TOGETHER = 2**16, 2**22
# Bytes of the arguments of one task on a cluster. Dask warns of a task beyond 10 MB.
TASK_BYTES = 2**23
# Bytes of a panel on a cluster that joins several chunks.
PANEL_BYTES = 2**27
# Most rows of a memory map that a plan reads, and their entries: 32 MiB in float64. The median rule takes as many rows.
PLAN_ROWS, PLAN_ENTRIES = 1000, 2**22
# Rows of a panel of pairwise distances for the median rule.
MEDIAN_PANEL = 250
# Entries of the neighborhoods that are decomposed together: 32 MiB in float64.
NEIGHBOR_ENTRIES = 2**22

# Bytes that a fit on the host may allocate without a check of free memory, which takes 0.5 ms: the interpreter and its
# libraries take more. Odd, so that a plan distinguishes it from memory_limit="16MiB".
UNREAD_BYTES = 2**24 + 1

# -- tall matrices ---------------------------------------------------------------------------------------------------

# Rows that are widened to float64 together: they stay in cache with a basis of some hundred columns.
INNER_PANEL = 1024
# The same for float64 rows.
WIDE_INNER_PANEL = 8192
# On a GPU launches no longer count, and a basis of 640 columns takes 320 MiB; estimated.
GPU_INNER_PANEL = 65_536
# Entries, and fewest rows, of a panel that one of several workers multiplies by a narrow block. With 300 columns in
# float32, 256 rows take half the time of 1024 (two cores): they stay in a core's cache in float64 as well.
CACHED_ENTRIES, FEWEST_CACHED_ROWS = 2**16, 256
# Rows of a panel of a sum of squares in float32: 256 to 1024 are as exact (300 columns). Long ones are added up less
# often in float64: 512 take a fifth more time.
SQUARE_ROWS = 1024
# Rows of a block, and most partial results, of a reduction on a GPU.
ROW_BLOCK = 256
ROW_BLOCK_STAGES = 512
# Edge of the part of an answer that one block of threads of cuBLAS makes in float64; estimated.
ANSWER_TILE = 64
# Edge up to which all eigenpairs of a host matrix cost no more than some.
SMALL_MATRIX = 256
# Edge up to which the host solves the eigenproblem of a basis on a card: that of ten of its narrowest blocks, in some
# 30 ms. LAPACK takes seconds for some thousand columns, during which the card would be idle; estimated.
HOST_MATRIX = 640
# Reflections that the reduction to tridiagonal form makes, and its inverse applies, together.
LAPACK_BLOCK = 64
# Columns that are widened together when residuals are formed.
WIDENED_COLUMNS = 64
# Rows of a dense matrix that are centered together.
CENTERING_ROWS = 256

# -- block Krylov and pivoted Cholesky -------------------------------------------------------------------------------

# Columns of a block beyond p on the host. Fewer take more passes, each with less orthogonalization.
CPU_EXTRA_COLUMNS = 3
# Rows of a cached K up to which a block is as narrow as BLAS's kernels. Measured with 5 and 20 pairs: n = 500 in 7.4
# and 15.8 ms for 8.9 and 33.8 of wide blocks, n = 1000 in 14.2 and 33.5 for 14.9 and 49.8; n = 2000 gains nothing.
NARROW_BLOCK_UP_TO = 1000
# Columns of a block on a GPU: a pass costs the same up to about 64; estimated.
GPU_BLOCK_COLUMNS = 64
# BLAS kernels take columns by fours: 16 of them cost no more than 13.
GEMM_COLUMNS = 4
# Columns of wide blocks. cuBLAS needs rows that end on 16 bytes, and its tiles are wider still. On a CPU with AVX-512,
# products of a float32 tile with 16, 32, 35 and 48 columns take 0.85, 1.29, 1.70 and 1.60 ns an entry.
WIDE_COLUMNS = 16
# Columns of K that are held together.
SMALLEST_PIVOT_BLOCK, LARGEST_PIVOT_BLOCK = 8, 128
# Columns of F that one step of substitution computes: 64 to 128 take about the same time (300 columns, float32), and
# the inverse of a wider block is conditioned worse.
ELIMINATION_BLOCK = 64
# Entries of F that a panel of rows holds, and its fewest rows. Panels of half the size stay in a core's cache, but
# calls cost more: 300 pivots of 200 000 rows in blocks of 30 take 380 ms, with these 310 (float32, two cores).
PIVOT_PANEL_ENTRIES = PerDevice(2**17, 2**26)
FEWEST_PIVOT_ROWS = 1024

# -- covariances and latent variables --------------------------------------------------------------------------------

# Entries of a panel of the scatter matrix: 2 MiB in float32 stays in a core's cache with its product.
SCATTER_ENTRIES = PerDevice(2**19, 2**25)
# Most rows of such a panel: longer float32 sums lose digits before they are added up in float64.
LONGEST_SCATTER_PANEL = PerDevice(4096, 65_536)
FEWEST_SCATTER_ROWS, FEWEST_SCATTER_COLUMNS, FEWEST_PROJECTED = 256, 1024, 32
# Features up to which every worker has its own sum; beyond it workers share the tiles of one, of this edge.
PRIVATE_SCATTER_UP_TO = 2048
SCATTER_TILE_EDGE = 1024
# Columns of a block up to which a sparse matrix stored by columns is multiplied faster than by rows. Measured with four
# columns and 10⁶ random entries: 0.54 ms a column, by rows 0.67, each column alone 0.77.
SPARSE_NARROW_COLUMNS = 8
# Columns of such blocks after which the matrix is copied: the copy takes as long as it saves in a hundred.
SPARSE_COPY_AFTER = 128
# Entries of a tile that a product of sparse rows holds as a sparse matrix: 1.5 MiB with their indices, half of a tile.
SPARSE_PRODUCT_ENTRIES = 2**17
# Entries of a panel of the E step: it stays in cache, and calls do not count.
E_STEP_ENTRIES = PerDevice(2**19, 2**26)
SMALLEST_E_STEP_PANEL = 64
# Panels that a worker makes between two sums; their moments are held meanwhile.
E_STEP_WAVE = 4
# Entries of a batch that is made dense, read from a file or copied to a device together: 32 MiB in float64.
EM_BATCH_ENTRIES = 2**22
# Entries of a slice of rows that a pass reads from a set on a disk, or of an array: 32 MiB in float64.
READ_ENTRIES = 2**22
# Rows of a stream whose equals are looked for together; the search ends once enough differ.
COMPARED_ROWS = 256
# Entries of a batch that updates a PCA: 8 MiB in float64. Measured with 50 features: 250 rows take three times as long
# per row as 20 000, and more save nothing.
UPDATE_ENTRIES = 2**20
# Entries of a panel of a mixture: 1 MiB in float64 stays in a core's own cache during several passes.
MIXTURE_ENTRIES = PerDevice(2**17, 2**23)
SMALLEST_MIXTURE_PANEL = 64
# Features up to which covariances on a device are decomposed by LAPACK on the host: cuSOLVER is slower on them, and its
# answer would have to be verified.
MIXTURE_HOST_UP_TO = 256

# -- new points ------------------------------------------------------------------------------------------------------

# Rows whose scores are written together to an array of the caller.
SCORES_PANEL = 65_536
# Host rows that are projected together on a device, and rows whose square norms are formed together.
PROJECTED_ROWS = 65_536
WIDE_PROJECTED_ROWS = 1024
# Rows that return to data space together.
PREIMAGE_PANEL = 8192
# Entries of kernel values between the points of an iteration and the basis: 8 MiB and 256 MiB in float64.
PREIMAGE_ENTRIES = PerDevice(2**20, 2**25)

# -- threads ---------------------------------------------------------------------------------------------------------

# Multiplications of float64 products that are worth a thread, a quarter of a millisecond. Measured on two cores: a
# thread starts and ends in 0.06 ms and a pool of one in 0.14 ms, so that two workers gain from 0.3 ms of work on.
MULTIPLICATIONS_A_THREAD = 2**23
# Multiplications that take as long as a pass over an entry (0.35 ns), and as a kernel value of a finished product.
ENTRY_PASS, KERNEL_VALUE = 10, 40
# Sizes up to which one BLAS thread is faster. In small QR, SVD and eigenproblems the waiting of a second thread costs
# more than its work, most of all next to other programs.
EIGH_ONE_THREAD_UP_TO = 400  # rows of a dense eigenproblem
KRYLOV_ONE_THREAD_UP_TO = PerDevice(20_000, 256)  # rows of the basis
LOW_RANK_ONE_THREAD_UP_TO = 5000  # rows of the factor
# Features of an eigenproblem for some pairs and for all: half of a reduction to tridiagonal form is bound by memory.
PCA_ONE_THREAD_UP_TO, PCA_ONE_THREAD_FOR_ALL = 2500, 500
# Features of a batch.
BATCH_ONE_THREAD_UP_TO = 256
