// RKV_LIFETIMEBOUND: what a function returns must not outlive the argument marked so, or the object
// when it stands behind the function's parameters. Clang then warns where it sees that a temporary
// is left dangling; GCC knows nothing like it and ignores the mark.
//
//   RegisteredSpan local() const& RKV_LIFETIMEBOUND;
#pragma once

#if defined(__clang__)
#define RKV_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define RKV_LIFETIMEBOUND
#endif
