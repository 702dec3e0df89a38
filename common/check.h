// Includes rkv/check.h for the layers of the project. RKV_CHECK is public because headers of the
// verbs library use it.
#pragma once

#include "rkv/check.h"  // IWYU pragma: export
