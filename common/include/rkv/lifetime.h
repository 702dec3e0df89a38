// RKV_LIFETIMEBOUND: what a function returns must not outlive the argument marked so, or the object
// when it stands behind the function's parameters. Clang then warns where it sees that a temporary
// is left dangling; GCC knows nothing like it and ignores the mark.
//
//   RegisteredSpan local() const& RKV_LIFETIMEBOUND;
//
// RKV_CONSUMABLE, RKV_CONSUMES: a class whose objects are used up by one call, and that call.
// Clang's -Wconsumed then finds a second one within a function.
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
