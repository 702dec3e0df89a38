// A thread's name and its processor, and whether threads are to be had.
//
// Thread safety: free functions, any thread.
#pragma once

#include <sys/prctl.h>

#include <cstddef>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/result.h"

namespace rkv {

// What the calling thread is called in top(1), ps(1) and a debugger; the kernel keeps 15
// characters.
inline void name_thread(const char* name) {
  prctl(PR_SET_NAME, name);
}

// "2-5,8" in the order given. The error is what it must be, to go behind the name of the flag: a
// list, each number once, processors that this process may use (sched_getaffinity(2)).
std::expected<std::vector<unsigned>, std::string> parse_processors(std::string_view list);
// The calling thread, from now on. kInvalidArgument: it may not use this processor any more.
Status stay_on(unsigned processor);

// Starts this many threads, which do nothing, and ends them: whether limits of the process, the
// user or the container leave room for so many now, and for so many bytes of address space besides.
// kPermission when they do not. Libraries end the program where a thread cannot be started, so it
// is looked at before they try.
Status try_threads(unsigned count, std::size_t spare_bytes = 4096);
// Where address space is limited, the allocator keeps none for each thread: 64 MiB, which stacks of
// later threads would lack. Before threads are started.
void spare_address_space();
// Whether a thread may have a stack of `bytes`, the main one included: kPermission when not.
Status check_stack_limit(std::size_t bytes);

}  // namespace rkv
