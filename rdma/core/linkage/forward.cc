// Definitions of the functions of libibverbs and librdmacm for this program. At its first call each
// function looks up the function of the same name in the system's library; it then calls it. So
// nothing links rdma-core, and a program starts where rdma-core is not installed.
//
// If a library is missing, each function fails with errno ELIBACC, which no verb sets and which
// error.h explains. If a library is too old to have a function, the call fails with ENOSYS. The
// result is then a null pointer or 0, the text "not available", -1 for an int, or the negative
// errno for an ssize_t; error.h understands each verb's way to fail.
//
// The inline functions of verbs.h (posting, polling) use the tables of an opened device, so no call
// on a hot path comes here. Thread safety: that of the functions themselves.
//
// dlsym(3) without a version returns the default version (`ibv_open_device@@IBVERBS_1.1`), the same
// that linking selects. A library stays loaded until the process ends: its threads and descriptors
// cannot be removed.
#include <dlfcn.h>

#include <cerrno>
#include <type_traits>

#include "rdma/core/linkage/functions.h"

namespace {

// These names have not changed since 2005: the ABI is promised under them.
void* verbs_library() {
  static void* const handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return handle;
}
void* rdmacm_library() {
  static void* const handle = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return handle;
}

// librdmacm calls libibverbs, so if one is missing, both count as missing.
bool is_complete() {
  return verbs_library() != nullptr && rdmacm_library() != nullptr;
}

template <class Function>
Function* find(void* (*library)(), const char* name) {
  if (!is_complete()) return nullptr;
  return reinterpret_cast<Function*>(dlsym(library(), name));
}

template <class T>
T failed() {
  const int why = is_complete() ? ENOSYS : ELIBACC;
  errno = why;
  if constexpr (std::is_same_v<T, const char*>) {
    return "not available";
  } else if constexpr (std::is_same_v<T, ssize_t>) {
    return -why;
  } else if constexpr (std::is_same_v<T, int>) {
    return -1;
  } else if constexpr (!std::is_void_v<T>) {
    return T{};
  }
}

}  // namespace

// The name is in parentheses because several functions are macros as well.
#define RKV_FORWARD(library, result, name, parameters, arguments)                              \
  extern "C" result(name) parameters {                                                         \
    static auto* const found = find<std::remove_pointer_t<decltype(&(name))>>(library, #name); \
    if (found == nullptr) [[unlikely]]                                                         \
      return failed<result>();                                                                 \
    return found arguments;                                                                    \
  }
#define RKV_FORWARD_VERBS(result, name, parameters, arguments) \
  RKV_FORWARD(verbs_library, result, name, parameters, arguments)
#define RKV_FORWARD_RDMACM(result, name, parameters, arguments) \
  RKV_FORWARD(rdmacm_library, result, name, parameters, arguments)

RKV_VERBS_FUNCTIONS(RKV_FORWARD_VERBS)
RKV_RDMACM_FUNCTIONS(RKV_FORWARD_RDMACM)
