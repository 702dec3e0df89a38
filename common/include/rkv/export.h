// RKV_EXPORT: marks the public interface. Nothing else is visible in the shared library.
//
// Goes before a function that is defined in the library, and after `class` or `struct` of a type
// with exported members. The library is compiled with hidden visibility.
#pragma once

#define RKV_EXPORT __attribute__((visibility("default")))
