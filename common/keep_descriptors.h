// Takes the closed ones of the standard descriptors before anything else of a program does:
// constructors of shared libraries, such as gRPC's, open descriptors before main().
//
//   RKV_KEEP_STANDARD_DESCRIPTORS;  // in one source of a program, at namespace scope
#pragma once

#include "common/standard_streams.h"

// The functions of .preinit_array are called before all constructors. Shared objects have none.
#define RKV_KEEP_STANDARD_DESCRIPTORS                                                      \
  __attribute__((section(".preinit_array"), used)) static void (*rkv_keep_descriptors)() = \
      &::rkv::keep_standard_descriptors
