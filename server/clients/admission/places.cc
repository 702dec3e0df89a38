#include "server/clients/admission/places.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace rkv::server {

std::string_view Places::origin_of(std::string_view peer) {
  if (peer.starts_with("shm:")) return peer;
  return peer.substr(0, peer.rfind(':'));  // without the port
}

namespace {
// To others all processes of this host are one host, and so are the addresses of an IPv6 network of
// 64 bits. One host can have any number of them.
std::string host_of(std::string_view origin) {
  constexpr std::string_view kShm = "shm:";
  if (origin.starts_with(kShm)) return std::string(kShm);
  in6_addr address{};
  const std::string text(origin.substr(0, origin.find_first_of("]%")));
  const bool is_v6 = text.starts_with('[') && inet_pton(AF_INET6, text.c_str() + 1, &address) == 1;
  if (!is_v6 || IN6_IS_ADDR_V4MAPPED(&address)) return std::string(origin);
  return "network:" + std::string(reinterpret_cast<const char*>(&address), 8);
}
}  // namespace

std::shared_ptr<Place> Places::take(std::uint64_t session, std::string_view peer, Nanos now) {
  auto place = std::make_shared<Place>(session, std::string(origin_of(peer)), now, offences_);
  offences_->add_newcomer(origin_of(peer), now);
  const MutexLock lock(mutex_);
  std::erase_if(places_, [](const auto& one) { return one.expired(); });
  places_.push_back(place);
  return place;
}

std::optional<std::uint64_t> Places::victim(std::string_view newcomer, Nanos now) {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Place>> there;
  std::map<std::string_view, std::uint32_t> of_origin;
  std::map<std::string, std::uint32_t> of_host;
  for (const auto& one : places_) {
    auto place = one.lock();
    if (place == nullptr) continue;
    if (place->is_going()) {
      const bool leaves = now - place->going_since_ < kLeaving;
      if (leaves && place->going_for_ == origin_of(newcomer)) return std::nullopt;
      continue;
    }
    ++of_origin[place->origin_];
    ++of_host[host_of(place->origin_)];
    there.push_back(std::move(place));
  }
  // At most one host can hold more than half. A single place never counts as too many: two clients
  // that compete for the only place would take it from each other without end.
  const auto has_too_many = [&](const auto& one) {
    return one.second > 1 && 2 * std::uint64_t{one.second} > count_;
  };
  const std::string_view origin = origin_of(newcomer);
  const auto greedy = std::ranges::find_if(of_origin, has_too_many);
  const auto greedy_host = std::ranges::find_if(of_host, has_too_many);
  const bool from_host = greedy_host != of_host.end() && greedy_host->first != host_of(origin);
  const bool from_origin = greedy != of_origin.end() && greedy->first != origin;
  Place* longest = nullptr;
  Nanos longest_silence = 0;
  for (const auto& place : there) {
    const Nanos silence = now - place->last_heard_.load(std::memory_order_relaxed);
    const Nanos patience = place->ever_heard_.load(std::memory_order_relaxed) ? kSilent : kUnheard;
    const bool may_go = from_origin ? place->origin_ == greedy->first
                        : from_host ? host_of(place->origin_) == greedy_host->first
                                    : silence >= patience;
    // A worker may have heard from the client after `now`: a silence may be negative.
    if (!may_go || (longest != nullptr && silence <= longest_silence)) continue;
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
