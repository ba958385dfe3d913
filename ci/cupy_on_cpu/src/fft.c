// Stand-in for cuFFT: keeps plans; NumPy transforms the data (fft.py, installed as cupy_on_cpu_fft).
#include "device.h"
#include "missing.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>

// cufftResult
enum {
    SUCCESS = 0,
    INVALID_PLAN = 1,
    INVALID_TYPE = 3,
    INVALID_VALUE = 4,
    EXEC_FAILED = 6,
    INVALID_SIZE = 8,
    NOT_SUPPORTED = 16
};
// cufftType
enum { C2C = 0x29, R2C = 0x2a, C2R = 0x2c, Z2Z = 0x69, D2Z = 0x6a, Z2D = 0x6c };
enum { FORWARD = -1, INVERSE = 1, MOST_DIMENSIONS = 3, MOST_PLANS = 4096 };

// fft.py reads these structures: keep its classes GivenLayout and Plan alike.
typedef struct {
    int is_default; // contiguous arrays: the other fields are not set
    int outer[MOST_DIMENSIONS];
    int step, distance;
} Layout;

typedef struct {
    int made; // 1 after cufftMakePlan1d or cufftMakePlanMany
    int type, rank, batch;
    int size[MOST_DIMENSIONS];
    Layout input, output;
    void *stream;
} Plan;

static Plan *plans[MOST_PLANS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef int Transform(const Plan *plan, const void *input, void *output, int direction);
static Transform *transform;

// Called by fft.py when it is imported.
void cupy_on_cpu_set_transform(Transform *function) { transform = function; }

// ---- plans ----------------------------------------------------------------------------------------------------------

static Plan *plan_of(int handle) { return handle > 0 && handle < MOST_PLANS ? plans[handle] : 0; }

int cufftCreate(int *handle) {
    pthread_mutex_lock(&lock);
    int free_place = 1;
    while (free_place < MOST_PLANS && plans[free_place]) free_place++;
    if (free_place < MOST_PLANS) plans[free_place] = calloc(1, sizeof(Plan));
    pthread_mutex_unlock(&lock);
    if (free_place == MOST_PLANS) return not_written("cufftCreate of more than 4095 plans at once", NOT_SUPPORTED);
    *handle = free_place;
    return SUCCESS;
}

int cufftDestroy(int handle) {
    pthread_mutex_lock(&lock);
    Plan *plan = plan_of(handle);
    if (plan) plans[handle] = 0;
    pthread_mutex_unlock(&lock);
    free(plan);
    return plan ? SUCCESS : INVALID_PLAN;
}

int cufftGetVersion(int *version) {
    *version = CUDART_VERSION >= 13000 ? 12000 : 11400; // of CUDA 13.0 and 12.9
    return SUCCESS;
}

int cufftSetStream(int handle, void *stream) {
    if (!plan_of(handle)) return INVALID_PLAN;
    plan_of(handle)->stream = stream;
    return SUCCESS;
}

// NumPy allocates its own working memory.
int cufftSetAutoAllocation(int handle, int automatic) { return plan_of(handle) ? SUCCESS : INVALID_PLAN; }
int cufftSetWorkArea(int handle, void *memory) { return plan_of(handle) ? SUCCESS : INVALID_PLAN; }

static Layout layout_of(const int *outer, int step, int distance, int rank) {
    Layout layout = {.is_default = !outer, .step = step, .distance = distance};
    for (int i = 0; outer && i < rank; i++) layout.outer[i] = outer[i];
    return layout;
}

int cufftMakePlanMany(int handle, int rank, const int *size, const int *input_outer, int input_step, int input_distance,
                      const int *output_outer, int output_step, int output_distance, int type, int batch,
                      size_t *work_bytes) {
    Plan *plan = plan_of(handle);
    if (!plan || plan->made) return INVALID_PLAN;
    if (type != C2C && type != R2C && type != C2R && type != Z2Z && type != D2Z && type != Z2D) return INVALID_TYPE;
    if (rank < 1 || rank > MOST_DIMENSIONS) return INVALID_VALUE;
    if (batch < 1) return INVALID_SIZE;
    size_t elements = batch;
    for (int i = 0; i < rank; i++) {
        if (size[i] < 1) return INVALID_SIZE;
        plan->size[i] = size[i];
        elements *= size[i];
    }
    plan->rank = rank;
    plan->type = type;
    plan->batch = batch;
    plan->input = layout_of(input_outer, input_step, input_distance, rank);
    plan->output = layout_of(output_outer, output_step, output_distance, rank);
    plan->made = 1;
    *work_bytes = elements * (type >= Z2Z ? 16 : 8); // cuFFT takes about as much for most sizes
    return SUCCESS;
}

int cufftMakePlan1d(int handle, int size, int type, int batch, size_t *work_bytes) {
    return cufftMakePlanMany(handle, 1, &size, 0, 1, size, 0, 1, size, type, batch, work_bytes);
}

// ---- transforms -----------------------------------------------------------------------------------------------------

static void import_transform(void) {
    int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    int (*run)(const char *, void *) = (int (*)(const char *, void *))dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
    if (!ensure || !release || !run) return;
    int state = ensure();
    run("__import__('cupy_on_cpu_fft')", 0);
    release(state);
}

static int execute(int handle, int type, const void *input, void *output, int direction) {
    Plan *plan = plan_of(handle);
    if (!plan || !plan->made || plan->type != type) return INVALID_PLAN;
    if ((type == C2C || type == Z2Z) && direction != FORWARD && direction != INVERSE) return INVALID_VALUE;
    if (device_launch(plan->stream, "cufftExec")) return EXEC_FAILED;
    if (!transform) import_transform();
    return transform ? transform(plan, input, output, direction) : EXEC_FAILED;
}

int cufftExecC2C(int handle, void *input, void *output, int direction) {
    return execute(handle, C2C, input, output, direction);
}
int cufftExecZ2Z(int handle, void *input, void *output, int direction) {
    return execute(handle, Z2Z, input, output, direction);
}
int cufftExecR2C(int handle, void *input, void *output) { return execute(handle, R2C, input, output, FORWARD); }
int cufftExecD2Z(int handle, void *input, void *output) { return execute(handle, D2Z, input, output, FORWARD); }
int cufftExecC2R(int handle, void *input, void *output) { return execute(handle, C2R, input, output, INVERSE); }
int cufftExecZ2D(int handle, void *input, void *output) { return execute(handle, Z2D, input, output, INVERSE); }
