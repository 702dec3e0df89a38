#include "rkv/one_user.h"

namespace rkv::client {

// A visitor that uses its own client is the other way to meet a use.
void OneUser::refuse() const noexcept {
  const bool is_moved_from = at() == State::kMovedFrom;
  check_failed(is_moved_from ? "is not moved from" : "is not in use", __FILE__, __LINE__,
               is_moved_from ? sentences_->moved_from : sentences_->two_threads);
}

}  // namespace rkv::client
