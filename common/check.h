// RKV_CHECK, under the name by which the layers of the project include it. It is public because
// headers of the verbs library use it.
#pragma once

#include "rkv/check.h"  // IWYU pragma: export
