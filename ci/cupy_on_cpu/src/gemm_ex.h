// Products of matrices of any supported types, as cublasGemmEx documents them. Part of blas.c.
// Shorter factors become float32 values, rounded as the compute type says; then one product in float32 follows.
// Tensor cores sum in another order and may cut bits of partial sums, so the last digits differ from theirs.
#include "rounding.h"

// cudaDataType
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_8I = 3, C_32F = 4, C_64F = 5, C_16F = 6, C_8I = 7, R_32I = 10, R_16BF = 14 };

// cublasComputeType_t
enum {
    COMPUTE_16F = 64,
    COMPUTE_16F_PEDANTIC = 65,
    COMPUTE_32F = 68,
    COMPUTE_32F_PEDANTIC = 69,
    COMPUTE_64F = 70,
    COMPUTE_64F_PEDANTIC = 71,
    COMPUTE_32I = 72,
    COMPUTE_32I_PEDANTIC = 73,
    COMPUTE_32F_FAST_16F = 74,
    COMPUTE_32F_FAST_16BF = 75,
    COMPUTE_32F_FAST_TF32 = 77,
    COMPUTE_32F_EMULATED_16BFX9 = 78
};

// C (m x n) = alpha * op(A) (m x k) * op(B) (k x n) + beta * C.
// The types of alpha and beta follow from the compute type.
typedef struct {
    int ta, tb;
    Int m, n, k;
    const void *alpha, *a, *b, *beta;
    void *c;
    Int lda, ldb, ldc;
    int a_type, b_type, c_type, compute;
} Product;

static Int bytes_of(int type) {
    switch (type) {
    case R_8I: return 1;
    case R_16F:
    case R_16BF:
    case C_8I: return 2;
    case R_64F:
    case C_32F: return 8;
    case C_64F: return 16;
    default: return 4;
    }
}

static int is_complex(int type) { return type == C_8I || type == C_16F || type == C_32F || type == C_64F; }

static Int at_least_1(Int value) { return value > 1 ? value : 1; }

static int check_shape(const Product *p) {
    if (p->ta < 0 || p->ta > 2 || p->tb < 0 || p->tb > 2)
        return refuse(INVALID_VALUE, "an operation that is not N, T or C");
    if (p->m < 0 || p->n < 0 || p->k < 0) return refuse(INVALID_VALUE, "a negative size");
    if (p->lda < at_least_1(p->ta ? p->k : p->m) || p->ldb < at_least_1(p->tb ? p->n : p->k) ||
        p->ldc < at_least_1(p->m))
        return refuse(INVALID_VALUE, "a leading dimension of a matrix product");
    return SUCCESS;
}

// The table of supported types in the documentation of cublasGemmEx, without its complex rows.
static int supports(int compute, int factors, int result) {
    switch (compute) {
    case COMPUTE_16F:
    case COMPUTE_16F_PEDANTIC: return factors == R_16F && result == R_16F;
    case COMPUTE_32I:
    case COMPUTE_32I_PEDANTIC: return factors == R_8I && result == R_32I;
    case COMPUTE_64F:
    case COMPUTE_64F_PEDANTIC: return factors == R_64F && result == R_64F;
    case COMPUTE_32F:
    case COMPUTE_32F_PEDANTIC:
        if (result == R_32F) return factors == R_8I || factors == R_16F || factors == R_16BF || factors == R_32F;
        return factors == result && (factors == R_16F || factors == R_16BF);
    case COMPUTE_32F_FAST_16F:
    case COMPUTE_32F_FAST_16BF:
    case COMPUTE_32F_FAST_TF32: return factors == R_32F && result == R_32F;
    default: return 0;
    }
}

static int check_types(const Product *p) {
    char name[120];
    if (is_complex(p->a_type) || is_complex(p->b_type) || is_complex(p->c_type) ||
        p->compute == COMPUTE_32F_EMULATED_16BFX9) {
        snprintf(name, sizeof name, "cublasGemmEx with types %d %d %d and compute type %d", p->a_type, p->b_type,
                 p->c_type, p->compute);
        return not_written(name, NOT_SUPPORTED);
    }
    if (p->a_type != p->b_type || !supports(p->compute, p->a_type, p->c_type)) {
        snprintf(name, sizeof name, "a product with types %d %d %d and compute type %d", p->a_type, p->b_type,
                 p->c_type, p->compute);
        return refuse(NOT_SUPPORTED, name);
    }
    int is_integer = p->compute == COMPUTE_32I || p->compute == COMPUTE_32I_PEDANTIC;
    if (is_integer && (p->lda % 4 || p->ldb % 4 || (uintptr_t)p->a % 4 || (uintptr_t)p->b % 4))
        return refuse(NOT_SUPPORTED, "an integer product of rows that do not start at multiples of 4 bytes");
    return SUCCESS;
}

// ---- factors --------------------------------------------------------------------------------------------------------

static float entry(const void *matrix, int type, Int index) {
    switch (type) {
    case R_8I: return ((const int8_t *)matrix)[index];
    case R_16F: return float_of_float16(((const uint16_t *)matrix)[index]);
    case R_16BF: return float_of_bfloat16(((const uint16_t *)matrix)[index]);
    default: return ((const float *)matrix)[index];
    }
}

static float rounded_for(int compute, float value) {
    switch (compute) {
    case COMPUTE_32F_FAST_TF32: return nearest_tf32(value);
    case COMPUTE_32F_FAST_16F: return nearest_float16(value);
    case COMPUTE_32F_FAST_16BF: return nearest_bfloat16(value);
    default: return value;
    }
}

// A new float32 matrix, rows x columns without gaps: op(matrix), each entry rounded as the compute type says.
static float *packed(const void *matrix, int type, Int ld, int transpose, Int rows, Int columns, int compute) {
    float *result = memory(sizeof(float) * rows * columns);
    for (Int j = 0; j < columns; j++)
        for (Int i = 0; i < rows; i++)
            result[i + j * rows] = rounded_for(compute, entry(matrix, type, transpose ? j + i * ld : i + j * ld));
    return result;
}

// ---- the products, each for some compute types ----------------------------------------------------------------------

static void multiply_float64(const Product *p) {
    typedef void Dgemm(int, int, int, Int, Int, Int, double, const double *, Int, const double *, Int, double, double *,
                       Int);
    ((Dgemm *)CBLAS("dgemm"))(COLUMNS, transposed(p->ta), transposed(p->tb), p->m, p->n, p->k,
                              *(const double *)p->alpha, p->a, p->lda, p->b, p->ldb, *(const double *)p->beta, p->c,
                              p->ldc);
}

static void multiply_float32(const Product *p) {
    typedef void Sgemm(int, int, int, Int, Int, Int, float, const float *, Int, const float *, Int, float, float *,
                       Int);
    ((Sgemm *)CBLAS("sgemm"))(COLUMNS, transposed(p->ta), transposed(p->tb), p->m, p->n, p->k, *(const float *)p->alpha,
                              p->a, p->lda, p->b, p->ldb, *(const float *)p->beta, p->c, p->ldc);
}

// Sums in float32 of factors that `a` and `b` hold, packed; the result is rounded to its type once, at the end.
static void multiply_packed(const Product *p, const float *a, const float *b) {
    Product wide = *p;
    wide.ta = wide.tb = 0;
    wide.a = a;
    wide.b = b;
    wide.lda = at_least_1(p->m);
    wide.ldb = at_least_1(p->k);
    if (p->c_type == R_32F) {
        multiply_float32(&wide);
        return;
    }
    float *c = packed(p->c, p->c_type, p->ldc, 0, p->m, p->n, COMPUTE_32F);
    wide.c = c;
    wide.ldc = at_least_1(p->m);
    multiply_float32(&wide);
    uint16_t *result = p->c;
    for (Int j = 0; j < p->n; j++)
        for (Int i = 0; i < p->m; i++)
            result[i + j * p->ldc] = p->c_type == R_16F ? float16_of(c[i + j * p->m]) : bfloat16_of(c[i + j * p->m]);
    free(c);
}

// Sums in float16: each product is added in float32 and the sum rounded to float16 at once.
static void multiply_float16(const Product *p, const float *a, const float *b) {
    float alpha = entry(p->alpha, R_16F, 0), beta = entry(p->beta, R_16F, 0);
    float *sums = memory(sizeof(float) * p->m);
    uint16_t *c = p->c;
    for (Int j = 0; j < p->n; j++, c += p->ldc) {
        for (Int i = 0; i < p->m; i++) sums[i] = 0;
        for (Int l = 0; l < p->k; l++)
            for (Int i = 0; i < p->m; i++) sums[i] = nearest_float16(sums[i] + a[i + l * p->m] * b[l + j * p->k]);
        for (Int i = 0; i < p->m; i++) c[i] = float16_of(alpha * sums[i] + (beta ? beta * float_of_float16(c[i]) : 0));
    }
    free(sums);
}

// Sums of integers modulo 2^32.
static void multiply_integers(const Product *p, const float *a, const float *b) {
    uint32_t alpha = *(const uint32_t *)p->alpha, beta = *(const uint32_t *)p->beta;
    uint32_t *c = p->c;
    for (Int j = 0; j < p->n; j++, c += p->ldc)
        for (Int i = 0; i < p->m; i++) {
            uint32_t sum = 0;
            for (Int l = 0; l < p->k; l++) sum += (uint32_t)((int32_t)a[i + l * p->m] * (int32_t)b[l + j * p->k]);
            c[i] = alpha * sum + (beta ? beta * c[i] : 0);
        }
}

// The compute type that the math mode of the handle makes of the default one of float32 products.
static int compute_in_mode(const Handle *handle, int compute, int type) {
    if (compute != COMPUTE_32F || type != R_32F) return compute;
    switch (handle->math_mode & ~DISALLOW_REDUCED_PRECISION_REDUCTION) {
    case TF32_TENSOR_OP_MATH: return COMPUTE_32F_FAST_TF32;
    case TENSOR_OP_MATH: return COMPUTE_32F_FAST_16F;
    default: return compute;
    }
}

static void trace(const Product *p) {
    fprintf(stderr,
            "[cupy_on_cpu] product op %d %d m %ld n %ld k %ld lda %ld ldb %ld ldc %ld types %d %d %d compute %d\n",
            p->ta, p->tb, (long)p->m, (long)p->n, (long)p->k, (long)p->lda, (long)p->ldb, (long)p->ldc, p->a_type,
            p->b_type, p->c_type, p->compute);
}

static int multiply(const Handle *handle, Product product) {
    Product *p = &product;
    if (!handle) return NOT_INITIALIZED;
    int status = check_shape(p);
    if (!status) status = check_types(p);
    if (status) return status;
    p->compute = compute_in_mode(handle, p->compute, p->a_type);
    count_products++;
    if (getenv("CUPY_ON_CPU_TRACE")) trace(p);
    if (device_no_work || !p->m || !p->n) return SUCCESS;
    int is_plain_float32 = p->a_type == R_32F && (p->compute == COMPUTE_32F || p->compute == COMPUTE_32F_PEDANTIC);
    if (p->a_type == R_64F)
        multiply_float64(p);
    else if (is_plain_float32)
        multiply_float32(p);
    else {
        float *a = packed(p->a, p->a_type, p->lda, p->ta, p->m, p->k, p->compute);
        float *b = packed(p->b, p->b_type, p->ldb, p->tb, p->k, p->n, p->compute);
        if (p->c_type == R_32I)
            multiply_integers(p, a, b);
        else if (p->compute == COMPUTE_16F || p->compute == COMPUTE_16F_PEDANTIC)
            multiply_float16(p, a, b);
        else
            multiply_packed(p, a, b);
        free(a);
        free(b);
    }
    return SUCCESS;
}

// Multiply `count` times; from one product to the next the matrices move by these numbers of entries.
static int multiply_strided(const Handle *handle, Product p, Int a_stride, Int b_stride, Int c_stride, int count) {
    if (count < 0) return refuse(INVALID_VALUE, "a negative number of products");
    int status = SUCCESS;
    for (int i = 0; i < count && !status; i++) {
        status = multiply(handle, p);
        p.a = (const char *)p.a + a_stride * bytes_of(p.a_type);
        p.b = (const char *)p.b + b_stride * bytes_of(p.b_type);
        p.c = (char *)p.c + c_stride * bytes_of(p.c_type);
    }
    return status;
}

// ---- functions of the library ---------------------------------------------------------------------------------------

// cublasGemmAlgo_t: the default and 23 numbered ones, with and without tensor cores, and an automatic one.
static int is_algorithm(int algorithm) {
    return (algorithm >= -1 && algorithm <= 23) || (algorithm >= 99 && algorithm <= 115) || algorithm == 999;
}

int cublasGemmEx(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int a_type,
                 int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                 int compute, int algorithm) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    if (!is_algorithm(algorithm)) return refuse(INVALID_VALUE, "an algorithm that it does not have");
    return multiply(handle,
                    (Product){ta, tb, m, n, k, alpha, a, b, beta, c, lda, ldb, ldc, a_type, b_type, c_type, compute});
}

int cublasGemmStridedBatchedEx(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                               int a_type, int lda, long long a_stride, const void *b, int b_type, int ldb,
                               long long b_stride, const void *beta, void *c, int c_type, int ldc, long long c_stride,
                               int count, int compute, int algorithm) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    if (!is_algorithm(algorithm)) return refuse(INVALID_VALUE, "an algorithm that it does not have");
    Product first = {ta, tb, m, n, k, alpha, a, b, beta, c, lda, ldb, ldc, a_type, b_type, c_type, compute};
    return multiply_strided(handle, first, a_stride, b_stride, c_stride, count);
}

int cublasSgemmEx(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const void *a, int a_type,
                  int lda, const void *b, int b_type, int ldb, const float *beta, void *c, int c_type, int ldc) {
    int failed = begin(handle, __func__);
    if (failed) return failed;
    return multiply(
        handle, (Product){ta, tb, m, n, k, alpha, a, b, beta, c, lda, ldb, ldc, a_type, b_type, c_type, COMPUTE_32F});
}
