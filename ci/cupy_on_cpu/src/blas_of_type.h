// The functions that cuBLAS has once for float32 (S) and once for float64 (D). blas.c includes this file once for each,
// with REAL: the C type; LETTER: that of BLAS; FUNCTION(name): the name in cuBLAS; REAL_TYPE and REAL_COMPUTE: the
// numbers of the type and of the compute type.

// ---- products -------------------------------------------------------------------------------------------------------

int FUNCTION(gemm_v2)(void *handle, int ta, int tb, int m, int n, int k, const REAL *alpha, const REAL *a, int lda,
                      const REAL *b, int ldb, const REAL *beta, REAL *c, int ldc) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    return multiply(handle, (Product){ta, tb, m, n, k, alpha, a, b, beta, c, lda, ldb, ldc, REAL_TYPE, REAL_TYPE,
                                      REAL_TYPE, REAL_COMPUTE});
}

int FUNCTION(gemmStridedBatched)(void *handle, int ta, int tb, int m, int n, int k, const REAL *alpha, const REAL *a,
                                 int lda, long long a_stride, const REAL *b, int ldb, long long b_stride,
                                 const REAL *beta, REAL *c, int ldc, long long c_stride, int count) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    Product first = {ta, tb,  m,   n,   k,         alpha,     a,         b,           beta,
                     c,  lda, ldb, ldc, REAL_TYPE, REAL_TYPE, REAL_TYPE, REAL_COMPUTE};
    return multiply_strided(handle, first, a_stride, b_stride, c_stride, count);
}

int FUNCTION(gemmBatched)(void *handle, int ta, int tb, int m, int n, int k, const REAL *alpha, REAL *const *a, int lda,
                          REAL *const *b, int ldb, const REAL *beta, REAL *const *c, int ldc, int count) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    if (count < 0) return refuse(INVALID_VALUE, "a negative number of products");
    int status = SUCCESS;
    for (int i = 0; i < count && !status; i++)
        status = multiply(handle, (Product){ta, tb, m, n, k, alpha, a[i], b[i], beta, c[i], lda, ldb, ldc, REAL_TYPE,
                                            REAL_TYPE, REAL_TYPE, REAL_COMPUTE});
    return status;
}

int FUNCTION(gemv_v2)(void *handle, int ta, int m, int n, const REAL *alpha, const REAL *a, int lda, const REAL *x,
                      int x_step, const REAL *beta, REAL *y, int y_step) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    typedef void Gemv(int, int, Int, Int, REAL, const REAL *, Int, const REAL *, Int, REAL, REAL *, Int);
    if (ta < 0 || ta > 2 || m < 0 || n < 0 || lda < at_least_1(m) || !x_step || !y_step)
        return refuse(INVALID_VALUE, "an operation, size, leading dimension or step of gemv");
    ((Gemv *)CBLAS(LETTER "gemv"))(COLUMNS, transposed(ta), m, n, *alpha, a, lda, x, x_step, *beta, y, y_step);
    return SUCCESS;
}

// C = alpha op(A) + beta op(B). A factor of zero leaves its matrix unread.
int FUNCTION(geam)(void *handle, int ta, int tb, int m, int n, const REAL *alpha, const REAL *a, int lda,
                   const REAL *beta, const REAL *b, int ldb, REAL *c, int ldc) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    if (ta < 0 || ta > 2 || tb < 0 || tb > 2 || m < 0 || n < 0) return refuse(INVALID_VALUE, "an option of geam");
    if (lda < at_least_1(ta ? n : m) || ldb < at_least_1(tb ? n : m) || ldc < at_least_1(m))
        return refuse(INVALID_VALUE, "a leading dimension of geam");
    if ((c == a && (ta || lda != ldc)) || (c == b && (tb || ldb != ldc)))
        return refuse(INVALID_VALUE, "a matrix of geam in its own place that changes its layout");
    for (Int j = 0; j < n; j++)
        for (Int i = 0; i < m; i++) {
            REAL of_a = *alpha ? *alpha * (ta ? a[j + i * lda] : a[i + j * lda]) : 0;
            REAL of_b = *beta ? *beta * (tb ? b[j + i * ldb] : b[i + j * ldb]) : 0;
            c[i + j * ldc] = of_a + of_b;
        }
    return SUCCESS;
}

int FUNCTION(dot_v2)(void *handle, int n, const REAL *x, int x_step, const REAL *y, int y_step, REAL *result) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    typedef REAL Dot(Int, const REAL *, Int, const REAL *, Int);
    *result = ((Dot *)CBLAS(LETTER "dot"))(n, x, x_step, y, y_step);
    return SUCCESS;
}

int FUNCTION(nrm2_v2)(void *handle, int n, const REAL *x, int x_step, REAL *result) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    typedef REAL Nrm2(Int, const REAL *, Int);
    *result = ((Nrm2 *)CBLAS(LETTER "nrm2"))(n, x, x_step);
    return SUCCESS;
}

// side: 0 left, 1 right; part: 0 lower, 1 upper; unit: 1 if the diagonal is taken as ones.
int FUNCTION(trsm_v2)(void *handle, int side, int part, int ta, int unit, int m, int n, const REAL *alpha,
                      const REAL *a, int lda, REAL *b, int ldb) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    typedef void Trsm(int, int, int, int, int, Int, Int, REAL, const REAL *, Int, REAL *, Int);
    if ((side & ~1) || (part & ~1) || (unit & ~1) || ta < 0 || ta > 2)
        return refuse(INVALID_VALUE, "an option of trsm");
    if (m < 0 || n < 0 || lda < at_least_1(side ? n : m) || ldb < at_least_1(m))
        return refuse(INVALID_VALUE, "a size or leading dimension of trsm");
    int cblas_side = 141 + side, cblas_part = part == 0 ? 122 : 121, cblas_unit = 131 + unit;
    ((Trsm *)CBLAS(LETTER "trsm"))(COLUMNS, cblas_side, cblas_part, transposed(ta), cblas_unit, m, n, *alpha, a, lda, b,
                                   ldb);
    return SUCCESS;
}

// ---- batches of LU factorizations -----------------------------------------------------------------------------------

int FUNCTION(getrfBatched)(void *handle, int n, REAL *const *a, int lda, int *pivots, int *info, int count) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    if (n < 0 || count < 0 || lda < at_least_1(n))
        return refuse(INVALID_VALUE, "a size or leading dimension of getrfBatched");
    if (!pivots) return not_written("cublas getrfBatched without pivots", NOT_SUPPORTED);
    Int size = n, ld = lda, status, *wide_pivots = memory(sizeof(Int) * n);
    for (int i = 0; i < count; i++) {
        LAPACK(LETTER, "getrf")(&size, &size, a[i], &ld, wide_pivots, &status);
        for (int k = 0; k < n; k++) pivots[i * n + k] = wide_pivots[k];
        info[i] = status;
    }
    free(wide_pivots);
    return SUCCESS;
}

static int FUNCTION(solve)(char operation, Int n, Int columns, const REAL *a, Int lda, const int *pivots, REAL *b, Int ldb) {
    Int status = 0, *wide_pivots = memory(sizeof(Int) * n);
    for (Int k = 0; k < n; k++) wide_pivots[k] = pivots[k];
    LAPACK(LETTER, "getrs")(&operation, &n, &columns, a, &lda, wide_pivots, b, &ldb, &status);
    free(wide_pivots);
    return status;
}

int FUNCTION(getrsBatched)(void *handle, int ta, int n, int columns, const REAL *const *a, int lda, const int *pivots,
                           REAL *const *b, int ldb, int *info, int count) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    if (n < 0 || columns < 0 || count < 0 || lda < at_least_1(n) || ldb < at_least_1(n))
        return refuse(INVALID_VALUE, "a size or leading dimension of getrsBatched");
    if (!pivots) return not_written("cublas getrsBatched without pivots", NOT_SUPPORTED);
    *info = 0;
    for (int i = 0; i < count && !*info; i++)
        *info = FUNCTION(solve)(ta ? 'T' : 'N', n, columns, a[i], lda, pivots + i * n, b[i], ldb);
    return SUCCESS;
}

// The inverse solves for the columns of the identity. As in LAPACK, info tells the first zero on the diagonal of U.
int FUNCTION(getriBatched)(void *handle, int n, const REAL *const *a, int lda, const int *pivots, REAL *const *c,
                           int ldc, int *info, int count) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    if (n < 0 || count < 0 || lda < at_least_1(n) || ldc < at_least_1(n))
        return refuse(INVALID_VALUE, "a size or leading dimension of getriBatched");
    if (!pivots) return not_written("cublas getriBatched without pivots", NOT_SUPPORTED);
    for (int i = 0; i < count; i++) {
        info[i] = 0;
        for (int k = n - 1; k >= 0; k--)
            if (a[i][k + (Int)k * lda] == 0) info[i] = k + 1;
        if (info[i]) continue;
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++) c[i][k + (Int)j * ldc] = k == j;
        FUNCTION(solve)('N', n, n, a[i], lda, pivots + i * n, c[i], ldc);
    }
    return SUCCESS;
}

#undef REAL
#undef LETTER
#undef FUNCTION
#undef REAL_TYPE
#undef REAL_COMPUTE
