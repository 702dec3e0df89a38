#include "server/admission/places.h"

#include <algorithm>
#include <map>

namespace rkv::server {

std::string_view Places::origin_of(std::string_view peer) {
  if (peer.starts_with("shm:")) return peer;
  return peer.substr(0, peer.rfind(':'));  // without the port
}

std::shared_ptr<Place> Places::take(std::uint64_t session, std::string_view peer, Nanos now) {
  auto place = std::make_shared<Place>(session, std::string(origin_of(peer)), now, offences_);
  offences_->add_newcomer(origin_of(peer), now);
  const std::scoped_lock lock(mutex_);
  std::erase_if(places_, [](const auto& one) { return one.expired(); });
  places_.push_back(place);
  return place;
}

std::optional<std::uint64_t> Places::victim(std::string_view newcomer, Nanos now) {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<Place>> there;
  std::map<std::string_view, std::uint32_t> of_origin;
  for (const auto& one : places_) {
    auto place = one.lock();
    if (place == nullptr) continue;
    if (place->is_going()) {
      const bool leaves = now - place->going_since_ < kLeaving;
      if (leaves && place->going_for_ == origin_of(newcomer)) return std::nullopt;
      continue;
    }
    ++of_origin[place->origin_];
    there.push_back(std::move(place));
  }
  // At most one origin can hold more than half. A single place never counts as too many: two
  // clients that compete for the only place would take it from each other without end.
  const auto greedy = std::ranges::find_if(of_origin, [&](const auto& one) {
    return one.second > 1 && 2 * std::uint64_t{one.second} > count_;
  });
  const bool takes_from_greedy = greedy != of_origin.end() && greedy->first != origin_of(newcomer);
  Place* longest = nullptr;
  Nanos longest_silence = -1;
  for (const auto& place : there) {
    const Nanos silence = now - place->last_heard_.load(std::memory_order_relaxed);
    const Nanos patience = place->ever_heard_.load(std::memory_order_relaxed) ? kSilent : kUnheard;
    const bool may_go = takes_from_greedy ? place->origin_ == greedy->first : silence >= patience;
    if (!may_go || silence <= longest_silence) continue;
    longest = place.get();
    longest_silence = silence;
  }
  if (longest == nullptr) return std::nullopt;
  longest->going_for_ = origin_of(newcomer);
  longest->going_since_ = now;
  // Release: pairs with is_going() in a worker to which the client has not been delivered yet.
  longest->is_going_.store(true, std::memory_order_release);
  return longest->session_;
}

}  // namespace rkv::server
