// The head of every translated module. The names are short where each line of a translated kernel uses them.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "launch.h"

#include "bits.h"
#include "halves.h"
#include "copies.h"
#include "fibers.h"
#include "threads.h"
#include "warps.h"
#include "matrices.h"
#include "blocks.h"
