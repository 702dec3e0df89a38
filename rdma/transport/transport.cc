#include "rdma/transport/transport.h"

namespace rkv::rdma {

const char* to_string(Completion::Status status) {
  switch (status) {
    case Completion::Status::kOk:
      return "ok";
    case Completion::Status::kRemoteAccess:
      return "refused by the peer's device";
    case Completion::Status::kFlushed:
      return "flushed";
    case Completion::Status::kFailed:
      return "failed";
  }
  return "?";
}

}  // namespace rkv::rdma
