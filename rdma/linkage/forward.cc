// The functions of libibverbs and librdmacm as this program's own: each looks its namesake up in
// the library of the system at its first call, and calls it. So nothing links rdma-core, and a
// program starts where it is not installed.
//
// Where a library is missing each function fails with errno ELIBACC, which no verb sets and which
// error.h explains; where a library is too old to have a function, with ENOSYS. Pointers are null
// then, texts say "not available", numbers are -1, of which error.h understands each verb's way.
//
// What verbs.h has inline (posting, polling) goes through the tables of an opened device, as
// always: no call on a hot path comes here. Thread safety: as of the functions themselves.
//
// dlsym(3) without a version gives the default one (`ibv_open_device@@IBVERBS_1.1`), the one that
// linking gives. A library stays loaded until the process ends: its threads and descriptors cannot
// be taken back.
#include <dlfcn.h>

#include <cerrno>
#include <type_traits>

#include "rdma/linkage/functions.h"

namespace {

// Their names have not changed since 2005: they are what the ABI is promised under.
void* verbs_library() {
  static void* const handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return handle;
}
void* rdmacm_library() {
  static void* const handle = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return handle;
}

// librdmacm calls libibverbs: one without the other is neither.
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

// The name in parentheses: several are macros as well.
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
