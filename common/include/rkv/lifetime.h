// RKV_LIFETIMEBOUND: the function's result must not outlive the marked argument, or the object if
// the mark follows the parameter list. Clang warns when a temporary is left dangling. GCC has no
// equivalent and ignores the mark.
//
//   RegisteredSpan local() const& RKV_LIFETIMEBOUND;
//
// RKV_CONSUMABLE, RKV_CONSUMES: mark a class whose objects are used up by one call, and that call.
// Clang's -Wconsumed finds a second call within a function.
#pragma once

#if defined(__clang__)
#define RKV_LIFETIMEBOUND [[clang::lifetimebound]]
#define RKV_CONSUMABLE [[clang::consumable(unconsumed)]]
#define RKV_CONSUMES \
  __attribute__((callable_when("unconsumed", "unknown"))) __attribute__((set_typestate(consumed)))
#else
#define RKV_LIFETIMEBOUND
#define RKV_CONSUMABLE
#define RKV_CONSUMES
#endif
