// What a thread is called in top(1), ps(1) and a debugger.
#pragma once

#include <sys/prctl.h>

namespace rkv {

// Of the calling thread; the kernel keeps 15 characters.
inline void name_thread(const char* name) {
  prctl(PR_SET_NAME, name);
}

}  // namespace rkv
