// RKV_EXPORT: the public interface, and nothing else, is visible in the shared library.
//
// Stands before a function that is defined in the library, and behind `class` or `struct` of a type
// that has such members. The library is compiled with everything hidden that is not marked so.
#pragma once

#define RKV_EXPORT __attribute__((visibility("default")))
