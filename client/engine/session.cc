#include "client/engine/session.h"

namespace rkv::client {

namespace {

rdma::PollMode poll_mode(Polling polling) {
  switch (polling) {
    case Polling::kBusy:
      return rdma::PollMode::kBusy;
    case Polling::kEvent:
      return rdma::PollMode::kEvent;
    case Polling::kAdaptive:
      break;
  }
  return rdma::PollMode::kAdaptive;
}

// Fraction of the cache for single keys: one in four.
constexpr std::size_t kSlotsPart = 4;

}  // namespace

namespace {
// With the clock of a test or a simulation, its client reads no other clock.
std::unique_ptr<const GroupClock> group_clock_for(const Clock& clock) {
  if (dynamic_cast<const SteadyClock*>(&clock) != nullptr) {
    return std::make_unique<HostGroupClock>();
  }
  return std::make_unique<SingleGroupClock>(clock);
}
}  // namespace

Session::Session(const ClientOptions& client_options,
                 std::shared_ptr<rdma::Transport> client_transport, const Clock& client_clock,
                 Arena client_arena, std::optional<Credentials> credentials,
                 std::shared_ptr<Home> client_home)
    : transport(std::move(client_transport)),
      clock(client_clock),
      group_clock(group_clock_for(client_clock)),
      options(without_secret(client_options)),
      arena(std::move(client_arena)),
      large(*transport, options.large_bytes),
      groups(options.cache_bytes - options.cache_bytes / kSlotsPart),
      slots(options.cache_bytes / kSlotsPart),
      link(*transport, clock, arena,
           {.address = options.server,
            .name = options.name,
            .reads_in_flight = options.reads_in_flight,
            .requests_in_flight = options.requests_in_flight,
            .poll = poll_mode(options.polling),
            .credentials = std::move(credentials)}),
      loader(link, clock, arena, map),
      servers(options.server),
      home(std::move(client_home)) {}

Counter Session::counter_in(const Response& response) const {
  return {.number = load_le<std::int64_t>(response.value.data()),
          .version = response.version.bits,
          .durability = durability_of(response)};
}

void Session::forget_places() {
  groups.clear();
  slots.clear();
}

// Caches the place of a record that was written, so that the next GET is one READ. This is a hint,
// like everything in the caches (GET-5). It also serves keys that only the server finds. Such a
// key's group is full, so patch() adds nothing to it unless the cached copy is old. An answer
// without a slot means that the key has left its cached place.
void Session::learn_place(Bytes key, const Response& response) {
  const KeyHash hash = map.hash(key);
  if (response.slot.fingerprint() != hash.fingerprint()) return slots.forget(hash);
  slots.put(hash, response.slot);
  const auto home = map.home(hash);
  if (!home) return;
  const bool in_neighbour = (response.flags & Response::kInNeighbour) != 0;
  groups.patch(in_neighbour ? home->neighbour() : *home, response.slot);
}

}  // namespace rkv::client
