#include "server/request/outcome_archive.h"

#include <utility>

namespace rkv::server {

namespace {
bool is_same(const User* a, const User* b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}
}  // namespace

void OutcomeArchive::put(std::uint64_t session, std::shared_ptr<const User> user,
                         std::shared_ptr<const Outcomes> outcomes) {
  const MutexLock lock(mutex_);
  while (!in_order_.empty() &&
         (in_order_.size() >= capacity_ || is_too_old(ended_.at(in_order_.front()))))
    drop_oldest();
  if (capacity_ == 0) return;
  const auto [place, is_new] = ended_.try_emplace(session);
  if (!is_new) return;
  place->second = {.user = std::move(user), .outcomes = std::move(outcomes), .since = clock_.now()};
  in_order_.push_back(session);
}

void OutcomeArchive::drop_oldest() {
  ended_.erase(in_order_.front());
  in_order_.pop_front();
}

std::shared_ptr<const Outcomes> OutcomeArchive::find(std::uint64_t session,
                                                     const User* user) const {
  const MutexLock lock(mutex_);
  const auto found = ended_.find(session);
  if (found == ended_.end() || is_too_old(found->second)) return nullptr;
  if (!is_same(found->second.user.get(), user)) return nullptr;  // ONCE-5
  return found->second.outcomes;
}

std::size_t OutcomeArchive::size() const {
  const MutexLock lock(mutex_);
  return ended_.size();
}

}  // namespace rkv::server
